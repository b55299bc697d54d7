// The keys of [[exchange]], and what they become.
#pragma once

#include <vector>

#include "base/config.h"
#include "exchange/exchange_service.h"

namespace offpath::agent {

inline constexpr ConfigKey exchange_keys[] = {
    {"exchange.name", ConfigType::text, "", "What programs and metrics call it. Has to be there."},
    {"exchange.topology", ConfigType::text, "allgather",
     "Who sends to whom: allgather, neighbourhoods(SIZE), hybrid(SIZE, DEPTH), or file:/PATH with a tree, a group a "
     "line: \"rack0: dpu0 dpu1\"."},
    {"exchange.order", ConfigType::text, "contiguous",
     "Who is grouped with whom: contiguous (in the order of members), or locality (by the hosts of their addresses)."},
    {"exchange.members", ConfigType::texts, "",
     "Agents by name, the same list on all of them. Empty: those of a tree's file, or all of the group, in the order "
     "of names."},
    {"exchange.interval", ConfigType::duration, "100ms", "From one round to the next.", millisecond_ns / 10,
     3600 * second_ns},
    {"exchange.deadline", ConfigType::duration, "50ms",
     "Of a round: its view is given by then with what has come. At most exchange.interval.", millisecond_ns / 20,
     3600 * second_ns},
    {"exchange.views", ConfigType::text, "all",
     "Who is to have the whole: all, or leaders (those of the tree's uppermost groups; the others have their part, and "
     "less is sent)."},
    {"exchange.source", ConfigType::text, "",
     "Where this agent's records come from. Empty: a program publishes them. host: samples of the first [[host]], or "
     "else of this machine's "
     "[[source]]; any other name: the gauges of that name of a program. exchange.fields are theirs by name; a value "
     "that is not there is missing."},
    {"exchange.record_max", ConfigType::bytes, "64KiB", "The largest record.", 8, 4 << 20},
    {"exchange.fields", ConfigType::texts, "",
     "What a record has, each as NAME:TYPE or NAME:TYPE:UNIT, with the types u64, i64 and f64; 8 bytes each. Empty: "
     "bytes."},
    {"exchange.reductions", ConfigType::texts, "",
     "Figures over all members: sum(F), min(F), max(F), mean(F), top(F, K), histogram(F, LOW, HIGH, N) of fields."},
    {"exchange.records", ConfigType::boolean, "true", "Records travel. false: only what the reductions make of them."},
    {"exchange.grant_total", ConfigType::integer, "0",
     "How much may be granted at any time to all members together. 0: there are no grants. -1: any amount (targets, "
     "not shares). "
     "Wants members that are named.",
     -1, INT64_MAX},
    {"exchange.grant_ttl", ConfigType::duration, "500ms",
     "How long a grant is valid after its member was last heard of.", millisecond_ns, 3600 * second_ns},
    {"exchange.grant_lease", ConfigType::duration, "1s",
     "For how long a majority stands behind whoever grants. After a leader's death nobody is granted anything for "
     "about as long.",
     millisecond_ns, 3600 * second_ns},
    {"exchange.user", ConfigType::text, "",
     "User, by number or name, whose programs may take part besides the agent's own user's and root's."},
};

[[nodiscard]] Result<std::vector<exchange::ExchangeSettings>> parse_exchanges(const Config& config);

}  // namespace offpath::agent
