// A query over several members: parts that begin together, and whose frames follow each other in the order of the
// members' names.
//
//   spread -> every part asked to begin -> all have: rows        -> frames of the first, of the second, …
//      ^            | members change                  aggregates -> a partial frame of each -> combined (job) -> frame
//      `-- retry ---'
//
// If each member's rows are ordered, and the answer's have to be, they are merged instead, from one frame of each
// member. A job merges rows that no later row can precede; then members whose frame is used up are asked for the next
// one. A lost member ends the answer with its name: no other member can continue its part.
#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "frame/parse.h"
#include "group/core_name.h"
#include "pool/query/query_answer.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"

namespace offpath::pool {

using service::Effects;
using wire::EntryKind;

namespace {

Failure naming(const std::string& member, Failure failure) {
  if (failure.message.find(fmt::format("member {}", member)) == std::string::npos)
    failure.message = fmt::format("member {}: {}", member, failure.message);
  return failure;
}

Result<std::vector<std::string>> columns_of(const FramePtr& frame) {
  const Bytes bytes{frame->buffer.data(), frame->bytes};
  OFP_ASSIGN(const frame::FrameView view, frame::parse_frame(bytes));
  OFP_ASSIGN(const frame::Schema schema, frame::read_schema(bytes, view));
  std::vector<std::string> columns;
  for (const frame::Field& field : schema.fields)
    columns.push_back(fmt::format("{} {}", field.name, frame::describe(field)));
  return columns;
}

// The schemas of members' answers are mostly equal bytes. Only types that programs serialise themselves are left to
// libarrow, because loading it would block the loop.
Status same_columns(const FramePtr& one, const FramePtr& other) {
  const auto schema_of = [](const FramePtr& each) { return frame::schema_bytes({each->buffer.data(), each->bytes}); };
  const auto bytes = schema_of(one), bytes_of_other = schema_of(other);
  if (bytes && bytes_of_other && std::ranges::equal(*bytes, *bytes_of_other)) return {};
  const auto columns = columns_of(one), columns_of_other = columns_of(other);
  if (!columns || !columns_of_other) return same_schema(one, other);
  if (*columns == *columns_of_other) return {};
  return fail(Error::schema, "one has columns {}, the other one {}", fmt::join(*columns, ", "),
              fmt::join(*columns_of_other, ", "));
}

std::int64_t wait_until(TimeNs deadline, TimeNs now) {
  return deadline == never ? -1 : std::max<std::int64_t>(deadline - now, 1);
}

}  // namespace

// The answering members: all members of the pool, or the one whose part is requested. Empty: this agent has all rows.
Result<std::optional<QueryMembers::Spread>> QueryService::members_of(const std::string& pool,
                                                                     const std::optional<QueryPart>& part) {
  OFP_ASSIGN(auto over, members_.spread(pool));
  if (!part) return over;
  const auto is_there = [&](const std::string& member) {
    return over ? std::ranges::find(over->members, member) != over->members.end() : member == members_.self();
  };
  if (!is_there(part->member))
    return fail(Error::peer_lost, "pool \"{}\": member {}, whose part is asked for, is not one of its members {}", pool,
                part->member, over ? "any more" : fmt::format("here: it lies at {} alone", members_.self()));
  if (part->view != (over ? over->view : 0) || (over && part->view == 0))
    return fail(Error::stale,
                "pool \"{}\": its members have changed since the part of member {} was listed: list its parts again",
                pool, part->member);
  if (over) over->members = {part->member};
  return over;
}

void QueryService::spread(Answer& answer, Query query, QueryMembers::Spread over, TimeNs now, Effects& effects) {
  answer.spread = std::make_unique<Spread>();
  Spread& made = *answer.spread;
  made.members_at_first = over.members;
  made.over = std::move(over);
  made.settled_at = deadline_after(now, limits_.settle_ns);
  if (answer.deadline != never) made.settled_at = std::max(made.settled_at, answer.deadline);
  made.part_query = query;
  made.part_query.part.reset();
  made.part_query.partial = !query.aggregates.empty();
  if (query.aggregates.empty()) put_in_order(made);
  made.bytes = encode(made.part_query);
  made.query = std::move(query);
  begin_parts(answer, now, effects);
}

void QueryService::begin_parts(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  spread.retry_at = never;
  spread.parts.clear();
  auto charge =
      members_.charge(answer.user, spread.over.members.size() *
                                       (spread.bytes.size() + answer.row_glob.size() + answer.column_glob.size()));
  if (!charge) return fail_answer(answer, std::move(charge).error(), now, effects);
  for (const std::string& member : spread.over.members) {
    Part part;
    part.member = member;
    part.number = next_number_++;
    part.own = member == members_.self();
    spread.parts.push_back(std::move(part));
  }
  std::uint64_t own_number = 0;
  for (const Part& part : spread.parts) {
    if (part.own) {
      own_number = part.number;
      continue;
    }
    members_.fetch_part(
        part.member, answer.user, EntryKind::peer_query, answer.deadline, spread.bytes,
        [user = std::uint64_t{answer.user}, owner = std::uint64_t{spread.over.owner},
         wait_ns = wait_until(answer.deadline, now), number = part.number, view = spread.over.view,
         pool = spread.over.text, rows = answer.row_glob, columns = answer.column_glob](
            const service::AskedMemory& memory, std::uint64_t, std::vector<std::byte>& payload) {
          wire::encode(wire::PeerQuery{user, owner, wait_ns, number, view, memory.bytes, pool, rows, columns}, payload);
        },
        // The part's bytes are charged until the member has answered, even if the query ends before.
        [this, number = answer.number, part_number = part.number, charge = *charge](Result<QueryMembers::Reply> reply,
                                                                                    TimeNs at, Effects& to) {
          on_part_reply(number, part_number, std::move(reply), at, to);
        },
        now, effects);
  }
  // It may fail at once, and end the whole answer.
  if (own_number != 0) begin_own_part(answer, own_number, effects, now);
}

void QueryService::begin_own_part(const Answer& answer, std::uint64_t number, Effects& effects, TimeNs now) {
  auto made = std::make_unique<Answer>();
  made->number = number;
  made->channel = answer.channel;
  made->user = answer.user;
  made->part_of = answer.number;
  made->asked = FrameTable::Get{};
  Answer& part = *answers_.emplace(number, std::move(made)).first->second;
  auto chosen = members_.choose_part({answer.spread->over.text, answer.row_glob, answer.column_glob, answer.user,
                                      answer.spread->over.view, answer.spread->over.owner},
                                     effects);
  if (!chosen) return fail_answer(part, std::move(chosen).error(), now, effects);
  if (chosen->empty()) return end(part, 0, now, effects);
  run(part, answer.spread->part_query, std::move(*chosen), now, effects);
}

void QueryService::on_part_reply(std::uint64_t number, std::uint64_t part_number, Result<QueryMembers::Reply> reply,
                                 TimeNs now, Effects& effects) {
  const auto at = answers_.find(number);
  if (at == answers_.end() || !at->second->spread) return;
  Answer& answer = *at->second;
  std::vector<Part>& parts = answer.spread->parts;
  const auto part = std::ranges::find(parts, part_number, &Part::number);
  if (part == parts.end() || part->state == Part::State::over) return;  // given up
  if (part->state == Part::State::beginning) return on_part_begun(answer, *part, std::move(reply), now, effects);
  if (!reply) {
    part->state = Part::State::over;
    return fail_answer(answer, naming(part->member, std::move(reply).error()), now, effects);
  }
  if (reply->frame) return on_part_frame(answer, *part, std::move(reply->frame), now, effects);
  part->state = Part::State::over;
  if (!answer.spread->query.aggregates.empty())
    return fail_answer(answer,
                       {Error::protocol, fmt::format("member {} has answered aggregates by nothing", part->member)},
                       now, effects);
  pump(answer, now, effects);
}

void QueryService::on_part_begun(Answer& answer, Part& part, Result<QueryMembers::Reply> reply, TimeNs now,
                                 Effects& effects) {
  Spread& spread = *answer.spread;
  if (!reply) {
    part.state = Part::State::over;
    Failure failure = naming(part.member, std::move(reply).error());
    if (failure.code != Error::would_block || now >= spread.settled_at)
      return fail_answer(answer, std::move(failure), now, effects);
    for (Part& each : spread.parts) give_up(each, now, effects);
    spread.last = std::move(failure);
    spread.retry_at = now + limits_.retry_ns;
    return;
  }
  if (reply->frame)
    return fail_answer(answer, {Error::protocol, fmt::format("member {} has begun with a frame", part.member)}, now,
                       effects);
  part.state = reply->done != 0 ? Part::State::open : Part::State::over;
  if (std::ranges::none_of(spread.parts, [](const Part& each) { return each.state == Part::State::beginning; }))
    all_begun(answer, now, effects);
}

// If as many agents as there are copies are gone, rows are lost: no agent's cores have two copies of a row.
void QueryService::retry_spread(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  auto over = members_of(answer.pool, spread.query.part);
  if (!over) return fail_answer(answer, std::move(over).error(), now, effects);
  if (!*over) return fail_answer(answer, spread.last, now, effects);  // this member is alone by now
  spread.over = std::move(**over);
  std::vector<std::string> gone;
  for (const std::string& member : spread.members_at_first)
    if (std::ranges::find(spread.over.members, member) == spread.over.members.end()) gone.push_back(member);
  if (group::agents_among(gone) >= spread.over.replicas && !spread.query.without_lost)
    return fail_answer(
        answer,
        {Error::peer_lost,
         fmt::format("member {} was lost, with rows of pool \"{}\", when the query began", gone.front(), answer.pool)},
        now, effects);
  begin_parts(answer, now, effects);
}

void QueryService::all_begun(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  spread.last = {};
  const auto is_open = [](const Part& part) { return part.state == Part::State::open; };
  if (std::ranges::none_of(spread.parts, is_open))
    return fail_answer(
        answer,
        {Error::not_found, spread.over.order.empty()
                               ? fmt::format("pool \"{}\" has no objects whose keys match ({}, {})", answer.pool,
                                             brief(answer.row_glob), brief(answer.column_glob))
                               : fmt::format("pool \"{}\" has no tracks yet", answer.pool)},
        now, effects);
  if (spread.query.aggregates.empty()) {
    answer.begun = true;
    reply(answer, answer.number | (1ull << 63), now, effects);
    return pump(answer, now, effects);
  }
  // This member's own answer comes at once, and may be the last.
  const std::uint64_t number = answer.number;
  for (std::size_t i = 0; i < spread.parts.size(); ++i) {
    if (!is_open(spread.parts[i])) continue;
    fetch(answer, spread.parts[i], now, effects);
    if (!answers_.contains(number)) return;
  }
}

// ---- frames

void QueryService::fetch(Answer& answer, Part& part, TimeNs now, Effects& effects) {
  part.state = Part::State::fetching;
  if (part.own) {
    const std::uint64_t number = answer.number, part_number = part.number;
    const auto at = answers_.find(part_number);
    const Status asked = at != answers_.end() ? next(*at->second, part.index, {}, now, effects)
                                              : Status(fail(Error::not_found, "this member's own part has ended"));
    if (!asked) on_part_reply(number, part_number, tl::unexpected(asked.error()), now, effects);
    return;
  }
  members_.fetch_part(
      part.member, answer.user, EntryKind::peer_query_next, answer.deadline, {},
      [number = part.number, index = part.index, reader = members_.self()](
          const service::AskedMemory& memory, std::uint64_t delivery, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerQueryNext{number, index, delivery, memory.inbox, reader}, payload);
      },
      [this, number = answer.number, part_number = part.number](Result<QueryMembers::Reply> reply, TimeNs at,
                                                                Effects& to) {
        on_part_reply(number, part_number, std::move(reply), at, to);
      },
      now, effects);
}

// Requests one frame ahead. May end the answer.
void QueryService::pump(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  if (answer.failure || answer.finished || answer.ready.size() >= 2) return;
  if (spread.ordered()) return pump_in_order(answer, now, effects);
  while (spread.current < spread.parts.size() && spread.parts[spread.current].state == Part::State::over)
    ++spread.current;
  if (spread.current < spread.parts.size()) {
    if (spread.parts[spread.current].state == Part::State::open)
      fetch(answer, spread.parts[spread.current], now, effects);
    return;
  }
  answer.finished = true;
  if (answer.asked) serve(answer, now, effects);
}

void QueryService::on_part_frame(Answer& answer, Part& part, FramePtr frame, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  part.state = Part::State::open;
  if (!spread.query.aggregates.empty()) {
    part.partial = std::move(frame);
    give_up(part, now, effects);
    if (std::ranges::all_of(spread.parts, [](const Part& each) { return each.state == Part::State::over; }))
      want_step(answer, effects);
    return;
  }
  if (part.index++ == 0 && spread.first) {
    if (Status same = same_columns(spread.first, frame); !same)
      return fail_answer(answer,
                         {same.error().code, fmt::format("members {} and {} answer different columns: {}",
                                                         spread.first_member, part.member, same.error().message)},
                         now, effects);
  }
  // The first frame of all gives the columns, even if it is empty; other empty frames are dropped.
  const bool says_something = !spread.first || frame->rows > 0;
  if (!spread.first) {
    spread.first = frame;
    spread.first_member = part.member;
  }
  if (says_something && spread.ordered() && frame->rows > 0) part.head = {std::move(frame), 0};
  if (!says_something || spread.ordered()) return pump(answer, now, effects);
  counters_.bytes_answered += frame->bytes;
  answer.ready.push_back(std::move(frame));
  if (answer.asked)
    serve(answer, now, effects);
  else
    pump(answer, now, effects);
}

// ---- ends

void QueryService::give_up(Part& part, TimeNs now, Effects& effects) {
  if (std::exchange(part.state, Part::State::over) == Part::State::over) return;
  if (!part.own) return members_.cancel_part(part.member, part.number, now, effects);
  if (answers_.contains(part.number)) forget(part.number, now, effects);
}

// ---- answers in order

// Columns that the order needs and the answer may not have.
void QueryService::put_in_order(Spread& spread) {
  spread.order.columns = spread.over.order;
  spread.order.hidden = spread.ordered() && !spread.part_query.projections.empty();
  if (!spread.order.hidden) return;
  for (const std::string& column : spread.order.columns)
    spread.part_query.projections.push_back({"order by " + column, field(column)});
}

// May end the answer: this member's own frame comes at once, if it is ready.
void QueryService::pump_in_order(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  if (spread.merging) return;
  const std::uint64_t number = answer.number;
  for (std::size_t i = 0; i < spread.parts.size(); ++i) {
    if (spread.parts[i].state == Part::State::open && spread.parts[i].head.frame == nullptr)
      fetch(answer, spread.parts[i], now, effects);
    if (!answers_.contains(number) || spread.merging || answer.failure || answer.finished) return;
  }
  if (std::ranges::any_of(spread.parts, [](const Part& part) { return part.state == Part::State::fetching; })) return;
  const bool rows_left = std::ranges::any_of(spread.parts, [](const Part& part) { return part.head.frame != nullptr; });
  if (rows_left || (!spread.merged && spread.first)) {
    spread.merging = true;
    return want_step(answer, effects);
  }
  answer.finished = true;
  if (answer.asked) serve(answer, now, effects);
}

std::function<Status()> QueryService::merge_job(const Answer& answer) const {
  std::vector<MergeHead> heads;
  for (const Part& part : answer.spread->parts)
    if (part.head.frame) heads.push_back(part.head);
  if (heads.empty()) heads.push_back({answer.spread->first, 0});  // nothing was chosen: the schema alone
  return [heads = std::move(heads), order = answer.spread->order, bytes_max = limits_.query.frame_bytes_max,
          memory_max = limits_.query.memory_bytes_max, cache = cache_, user = answer.user,
          result = answer.result]() -> Status {
    OFP_ASSIGN(Merged merged, merge(heads, order, bytes_max, *cache, user, memory_max));
    result->step.frames = std::move(merged.frames);
    result->heads = std::move(merged.heads);
    return {};
  };
}

void QueryService::on_merged(Answer& answer, TimeNs now, Effects& effects) {
  Spread& spread = *answer.spread;
  spread.merging = false;
  spread.merged = true;
  std::size_t merged = 0;
  for (Part& part : spread.parts)
    if (part.head.frame != nullptr) part.head = std::move(answer.result->heads[merged++]);
  answer.result.reset();
  if (answer.asked)
    serve(answer, now, effects);
  else
    pump(answer, now, effects);
}

}  // namespace offpath::pool
