// Requests to write a pool's tracks to files: of programs (tracks/track_writes.h), and of members for this agent's part
// (tracks/track_parts.h). This agent asks itself for its part like any other member, without messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sift/pools/known_pools.h"
#include "sift/pools/pool_agreements.h"
#include "sift/tracks/track_parts.h"
#include "sift/tracks/track_writes.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/sift_messages.h"

namespace offpath::sift {

class WriteRequests {
 public:
  // The references outlive this.
  WriteRequests(const ServiceContext& context, KnownPools& known, UnderWay& under_way, const PoolMaking& making,
                PoolAgreements& agreements);
  void set_self(const std::string& name) { parts_.set_self(name); }

  // ---- requests
  [[nodiscard]] Status serve(service::ChannelNumber channel, std::uint64_t ticket, const wire::SiftWrite& asked,
                             TimeNs now, service::Effects& effects);
  [[nodiscard]] Status serve_written(service::ChannelNumber channel, std::uint64_t ticket,
                                     const wire::SiftWritten& asked, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status serve_member(service::ChannelNumber channel, std::uint64_t ticket, const wire::PeerWrite& asked,
                                    TimeNs now, service::Effects& effects);

  // ---- events
  [[nodiscard]] bool has_job(std::uint64_t job) const { return parts_.has(job); }
  void on_job(std::uint64_t job, Status status, TimeNs now, service::Effects& effects);
  [[nodiscard]] bool has_ask(std::uint64_t number) const { return writes_.has(number); }
  void on_answer(std::uint64_t number, const Result<service::Answer>& answer, TimeNs now, service::Effects& effects);
  void on_members(std::span<const std::string> anew, TimeNs now, service::Effects& effects);
  void on_closed(service::ChannelNumber channel, TimeNs now, service::Effects& effects);
  void on_time(TimeNs now, service::Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    return std::min(parts_.next_deadline(), writes_.next_deadline());
  }
  [[nodiscard]] const TrackParts::Counters& counters() const noexcept { return parts_.counters(); }

 private:
  using What = wire::PeerWrite::What;
  struct PartAsked {
    TrackParts::Asker from;
    std::uint64_t process;
    uid_t asker;
    std::string text, directory;
    TimeNs until;
  };

  [[nodiscard]] Status begin(service::ChannelNumber channel, std::uint64_t ticket, const std::string& text,
                             const std::string& directory, TimeNs deadline, TimeNs now, service::Effects& effects);
  void ask(const TrackWrites::Ask& ask, const TrackWrites::Wanted& wanted, TimeNs now, service::Effects& effects);
  void ask_self(const TrackWrites::Ask& ask, const TrackWrites::Wanted& wanted, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status begin_part_of_member(const PartAsked& asked, TimeNs now, service::Effects& effects);
  [[nodiscard]] Status begin_part(const SiftPool& pool, const PartAsked& asked, TimeNs now, service::Effects& effects);
  void serve_part(const TrackParts::Asker& from, What what, TimeNs until, TimeNs now, service::Effects& effects);
  void tell_own_parts(TimeNs now, service::Effects& effects);

  const ServiceContext& context_;
  KnownPools& known_;
  const PoolMaking& making_;
  PoolAgreements& agreements_;
  TrackParts parts_;
  TrackWrites writes_;
  std::set<std::pair<service::ChannelNumber, std::uint64_t>> deferred_parts_;  // by the asker's number: they wait for
                                                                               // the pool
  std::vector<std::pair<std::uint64_t, Result<wire::Written>>> own_parts_;     // answers to writes_, by number
};

}  // namespace offpath::sift
