// The keys of [[exchange]], and the values they become.
#pragma once

#include <vector>

#include "agent/config/actuator_settings.h"
#include "base/config.h"
#include "exchange/exchange_settings.h"
#include "plugin/call.h"

namespace offpath::agent {

inline constexpr ConfigKey exchange_keys[] = {
    {"exchange.name", ConfigType::text, "", "The exchange's name for programs and metrics. Required."},
    {"exchange.topology", ConfigType::text, "allgather",
     "How records travel: allgather, neighbourhoods(SIZE), grouped_allgather(SIZE), hybrid(SIZE, DEPTH), or file:/PATH "
     "with a tree, one group on each line: \"rack0: dpu0 dpu1\"."},
    {"exchange.order", ConfigType::text, "contiguous",
     "How members are grouped: contiguous (in the order of members), or locality: no group has members of two hosts, "
     "or of "
     "two racks if no host has two members; at higher levels, racks stay together."},
    {"exchange.members", ConfigType::texts, "",
     "Agents by name, in the same order on all of them. Empty: those of a tree's file, or all members of the group by "
     "name."},
    {"exchange.interval", ConfigType::duration, "100ms", "The time from one round to the next.", millisecond_ns / 10,
     3600 * second_ns},
    {"exchange.deadline", ConfigType::duration, "50ms",
     "The time after which a round's view is published with the records that have arrived. At most exchange.interval.",
     millisecond_ns / 20, 3600 * second_ns},
    {"exchange.views", ConfigType::text, "all",
     "Members that get the whole view: all, or leaders (those of the tree's top groups; other members get their part, "
     "which saves traffic)."},
    {"exchange.source", ConfigType::text, "",
     "Source of this agent's records. Empty: a program. host: the first [[host]], or else this machine's [[source]]. "
     "Any other name: a program's gauges of that name. exchange.fields are matched by name; a field without a value is "
     "missing."},
    {"exchange.record_max", ConfigType::bytes, "64KiB", "The largest record.", 8, 4 << 20},
    {"exchange.fields", ConfigType::texts, "",
     "Fields of a record, each as NAME:TYPE or NAME:TYPE:UNIT, with the types u64, i64 and f64; 8 bytes each. Empty: "
     "records are plain bytes."},
    {"exchange.reductions", ConfigType::texts, "",
     "Figures over all members: sum(F), min(F), max(F), mean(F), top(F, K), histogram(F, LOW, HIGH, N) of fields."},
    {"exchange.records", ConfigType::boolean, "true",
     "Whether records travel. false: only the results of the reductions do."},
    {"exchange.grant_total", ConfigType::integer, "0",
     "How much may be granted to all members together at any time. 0: no grants. -1: any amount (targets, not shares)."
     " Needs members given by name.",
     -1, INT64_MAX},
    {"exchange.grant_ttl", ConfigType::duration, "500ms",
     "How long a grant stays valid after its member was last heard of.", millisecond_ns, 3600 * second_ns},
    {"exchange.grant_lease", ConfigType::duration, "1s",
     "How long a majority supports the leader that grants. After the death of a leader, or of its program, nothing is "
     "granted for about as long.",
     millisecond_ns, 3600 * second_ns},
    {"exchange.decide", ConfigType::text, "",
     "A function that is called with each view, as PLUGIN/FUNCTION of a [[plugin]]. It answers with this agent's "
     "record, with grants and with settings of actuators; programs can then only read views. Empty: none."},
    {"exchange.arguments", ConfigType::text, "", "The function's arguments."},
    {"exchange.actuators", ConfigType::texts, "",
     "Names of each [[actuator]] that the function may set. Empty: it sets none."},
    {"exchange.user", ConfigType::text, "",
     "Another user, by number or name, whose programs may take part. Programs of root and of the agent's own user "
     "always may."},
};

[[nodiscard]] Result<std::vector<exchange::ExchangeSettings>> parse_exchanges(const Config& config);
// The functions that decide in them; in the order of the configuration.
[[nodiscard]] Status read_decisions(const Config& config, const std::vector<plugin::PluginOptions>& plugins,
                                    const ActuatorSettings& actuators,
                                    std::vector<exchange::ExchangeSettings>& exchanges);

}  // namespace offpath::agent
