// Queries of programs and other members: pulls the query's bytes, runs its steps as jobs, and hands over or pushes the
// frames of its answer one by one as they are requested. A state machine like the other services.
//
//   pool_query -> pull of the bytes -> choose frames -> first step (job) -> Done{number of the answer}
//   query_next -> a frame that is ready, or the next step (job) and then its first frame, or Done: that was all. Who
//   gives
//                 frames to programs leases them, too
//   peer_query, peer_query_next: the same of a member, for its part of a query over several (query_spread.cc)
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "pool/query/query_members.h"
#include "pool/query/query_run.h"
#include "service/service.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/pool_messages.h"

namespace offpath::pool {

struct QueryServiceCounters {
  std::uint64_t queries = 0, failed = 0, steps = 0;
  std::uint64_t open = 0, running = 0;
  std::uint64_t rows_read = 0, bytes_read = 0, bytes_answered = 0;
};

class QueryService final : public service::Service {
 public:
  using Limits = QueryServiceLimits;
  QueryService(const Limits& limits, std::shared_ptr<service::BufferCache> cache, QueryMembers& members);
  ~QueryService() override;

  void on_channel_open(service::ChannelNumber channel, uid_t user);
  void on_channel_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects);
  // pool_query, query_next, release of an answer, and pool_cancel, which may belong to another service; from members
  // (is_member) peer_query, peer_query_next and peer_cancel.
  void on_request(service::ChannelNumber channel, const channel::Entry& request, bool is_member, TimeNs now,
                  service::Effects& effects);
  void on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_job(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) override;
  void on_time(TimeNs now, service::Effects& effects) override;
  [[nodiscard]] TimeNs next_deadline() const noexcept override;

  // ---- Service
  void on_opened(const service::OpenedChannel& channel) override {
    on_channel_open(channel.number, channel.client.user);
  }
  void on_closed(service::ChannelNumber channel, bool /*usual*/, TimeNs now, service::Effects& effects) override {
    on_channel_closed(channel, now, effects);
  }
  void on_request(const service::Request& asked, TimeNs now, service::Effects& effects) override {
    on_request(asked.channel, asked.entry, asked.is_member, now, effects);
  }

  [[nodiscard]] const QueryServiceCounters& counters() const noexcept { return counters_; }

 private:
  struct Answer;
  struct Part;
  struct Spread;
  struct Channel {
    uid_t user = 0;
    std::size_t open = 0;
  };
  struct Place {  // where a request came from
    service::ChannelNumber channel;
    std::uint64_t ticket;
  };

  [[nodiscard]] Status begin(Place place, const wire::PoolQuery& query, uid_t user, std::size_t open_max,
                             const wire::PeerQuery* of_member, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status on_member_request(service::ChannelNumber number, const channel::Entry& request, TimeNs now,
                                         service::Effects& effects);
  [[nodiscard]] Status next(Answer& answer, std::uint64_t index, FrameTable::Get get, TimeNs now,
                            service::Effects& effects);
  void start(Answer& answer, TimeNs now, service::Effects& effects);
  void run(Answer& answer, Query query, std::vector<QuerySource> sources, TimeNs now, service::Effects& effects);
  void want_step(Answer& answer, service::Effects& effects);
  void run_waiting(service::Effects& effects);
  void serve(Answer& answer, TimeNs now, service::Effects& effects);
  void reply(Answer& answer, std::uint64_t value, TimeNs now, service::Effects& effects);
  void end(Answer& answer, std::uint64_t value, TimeNs now, service::Effects& effects);
  void fail_answer(Answer& answer, Failure failure, TimeNs now, service::Effects& effects);
  void give_up(Answer& answer, TimeNs now, service::Effects& effects);
  void forget(std::uint64_t number, TimeNs now, service::Effects& effects);

  // query_spread.cc
  [[nodiscard]] Result<std::optional<QueryMembers::Spread>> members_of(const std::string& pool,
                                                                       const std::optional<QueryPart>& part);
  void spread(Answer& answer, Query query, QueryMembers::Spread over, TimeNs now, service::Effects& effects);
  void begin_parts(Answer& answer, TimeNs now, service::Effects& effects);
  void begin_own_part(const Answer& answer, std::uint64_t number, service::Effects& effects, TimeNs now);
  void fetch(Answer& answer, Part& part, TimeNs now, service::Effects& effects);
  void pump(Answer& answer, TimeNs now, service::Effects& effects);
  void on_part_reply(std::uint64_t number, std::uint64_t part_number, Result<QueryMembers::Reply> reply, TimeNs now,
                     service::Effects& effects);
  void on_part_begun(Answer& answer, Part& part, Result<QueryMembers::Reply> reply, TimeNs now,
                     service::Effects& effects);
  void all_begun(Answer& answer, TimeNs now, service::Effects& effects);
  void on_part_frame(Answer& answer, Part& part, FramePtr frame, TimeNs now, service::Effects& effects);

  // answers in order (query_spread.cc)
  static void put_in_order(Spread& spread);
  void pump_in_order(Answer& answer, TimeNs now, service::Effects& effects);
  [[nodiscard]] std::function<Status()> merge_job(const Answer& answer) const;
  void on_merged(Answer& answer, TimeNs now, service::Effects& effects);

  void give_up(Part& part, TimeNs now, service::Effects& effects);
  void retry_spread(Answer& answer, TimeNs now, service::Effects& effects);

  Limits limits_;
  std::shared_ptr<service::BufferCache> cache_;
  QueryMembers& members_;
  std::shared_ptr<QueryThreads> threads_;  // made for the first query
  std::unordered_map<service::ChannelNumber, Channel> channels_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Answer>> answers_;
  std::map<std::pair<service::ChannelNumber, std::uint64_t>, std::uint64_t> of_members_;  // by the member's number
  std::deque<std::uint64_t> waiting_;                                                     // answers that want a step
  std::uint64_t next_number_ = 1;
  QueryServiceCounters counters_;
};

}  // namespace offpath::pool
