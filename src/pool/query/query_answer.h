// An answer at work. Only query_service.cc and query_spread.cc include this.
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
  std::uint64_t number = 0;  // as the member is asked by it; this member's own part is the answer of that number
  bool own = false;
  std::uint64_t index = 0;  // of the frame that comes next
  FramePtr partial{};       // of aggregates: its answer
  MergeHead head{};         // of rows in order: the frame of which rows are left
};

// An answer whose frames come from several members. All parts begin at once, which fixes what each of them reads; until
// all have, nothing was given and the whole may begin anew.
struct QueryService::Spread {
  Query query, part_query;  // the whole, and the part that each member is asked for
  QueryMembers::Spread over;
  std::vector<std::string> members_at_first;
  std::vector<std::byte> bytes;  // of the query, as members are asked
  std::vector<Part> parts;       // in the order of names
  std::size_t current = 0;       // whose frames are asked for; of aggregates all at once
  TimeNs retry_at = never, settled_at = never;
  Failure last{};
  FramePtr first;  // frame of the answer: those of other parts have its schema
  std::string first_member;
  MergeOrder order;                      // without columns: rows come by member
  bool merging = false, merged = false;  // a job is to do it; one has given a frame

  [[nodiscard]] bool ordered() const noexcept { return !order.columns.empty(); }

  // In the order of names, so that the same question has the same answer to the last bit.
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
  service::Buffer bytes;          // of the query, until it is decoded
  std::shared_ptr<QueryRun> run;  // a job's while one is running
  std::shared_ptr<StepResult> result;
  std::stop_source stop;
  bool running = false, finished = false, begun = false, late = false;
  std::deque<FramePtr> ready;  // the first of them is number `first`
  std::uint64_t first = 0;
  std::optional<FrameTable::Get> asked;  // the waiting request: for the beginning, or for a frame
  std::uint64_t member_number = 0;       // of a member's part: its number there
  std::uint64_t view = 0;                // and the members it goes by
  uid_t owner = 0;                       // and whose pool it is there
  std::uint64_t part_of = 0;             // this member's own part of that answer
  std::unique_ptr<Spread> spread;
  std::optional<Failure> failure;  // that nobody was there to be told
};

}  // namespace offpath::pool
