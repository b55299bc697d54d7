// An answer while it is computed. Only query_service.cc and query_spread.cc include this.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pool/query/query_service.h"

namespace offpath::pool {

// The results of a job, held by the job and by its answer until both have ended.
struct StepResult {
  QueryStep step;
  std::vector<MergeHead> heads;  // the rest of each after a merge
};

// One member's part of an answer.
//
//   beginning -> open <-> fetching -> over
//                  `--------------------^     beginning -> over: nothing matches there
struct QueryService::Part {
  enum class State { beginning, open, fetching, over } state = State::beginning;
  std::string member;
  std::uint64_t number = 0;  // in requests to the member; this member's own part is the answer with that number
  bool own = false;
  std::uint64_t index = 0;  // of the frame that comes next
  FramePtr partial{};       // for aggregates: its answer
  MergeHead head{};         // for ordered rows: the frame that still has rows
};

// An answer with frames of several members. All parts begin at once, which fixes the objects that each of them reads.
// Until all have begun, no frame was returned, and the query may begin anew.
struct QueryService::Spread {
  Query query, part_query;  // the whole query, and each member's part
  QueryMembers::Spread over;
  std::vector<std::string> members_at_first;
  std::vector<std::byte> bytes;  // of the query, as members are asked
  std::vector<Part> parts;       // in the order of names
  std::size_t current = 0;       // the part whose frames are requested; for aggregates all at once
  TimeNs retry_at = never, settled_at = never;
  Failure last{};
  FramePtr first;  // of the answer; frames of other parts have its schema
  std::string first_member;
  MergeOrder order;                      // without columns: rows come by member
  bool merging = false, merged = false;  // a job should do it; a job has produced a frame

  [[nodiscard]] bool ordered() const noexcept { return !order.columns.empty(); }

  // In the order of names, so that equal queries have bitwise equal answers.
  [[nodiscard]] std::vector<FramePtr> partials() const {
    std::vector<FramePtr> all;
    for (const Part& part : parts)
      if (part.partial) all.push_back(part.partial);
    return all;
  }
};

struct QueryService::Answer {
  std::uint64_t number = 0;
  service::ChannelNumber channel = 0;
  uid_t user = 0;
  std::string pool, row_glob, column_glob;
  TimeNs deadline = never;
  service::Buffer bytes;          // bytes of the query, until it is decoded
  std::shared_ptr<QueryRun> run;  // a running job owns it
  std::shared_ptr<StepResult> result;
  std::stop_source stop;
  bool running = false, finished = false, begun = false, late = false;
  std::deque<FramePtr> ready;  // the first of them is number `first`
  std::uint64_t first = 0;
  std::optional<FrameTable::Get> asked;  // the waiting request: for the beginning, or for a frame
  std::uint64_t member_number = 0;       // for a member's part: its number there
  std::uint64_t view = 0;                // and its list of members
  uid_t owner = 0;                       // and the pool's owner there
  std::uint64_t part_of = 0;             // this member's own part of that answer
  std::unique_ptr<Spread> spread;
  std::optional<Failure> failure;  // a failure that could not be reported yet
};

}  // namespace offpath::pool
