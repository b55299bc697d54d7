// The interface between services and the dispatcher: events go in, effects come out. Read this first in src/service,
// then effects.h and request_table.h. A service overrides the events that concern it. Nothing in it waits; the time is
// an argument.
//
// Events for all services are delivered in the order of their registration. Requests, transfers, jobs, answers and
// calls go to one service, given by request_table.h and by the token.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "channel/ring.h"
#include "plugin/call.h"
#include "service/effects.h"
#include "wire/control.h"

namespace offpath::service {

struct Client {
  std::string program;
  uid_t user = 0;
  std::int64_t pid = 0;
  wire::JobLabels job_labels{};  // the job it belongs to
  std::optional<gid_t> group{};  // of a user that the kernel vouches for; none: the client proved only that it knows a
                                 // key
  std::string host{};            // the machine, or the network address, where it runs; empty if unknown
};

struct OpenedChannel {
  ChannelNumber number = 0;
  const Client& client;
  std::uint32_t streams_max = 0;
  std::uint64_t pull_ahead_bytes = 0;  // how many bytes of pulls should be under way
  bool same_clock = false;             // the program's CLOCK_MONOTONIC is this agent's
};

struct Request {
  ChannelNumber channel = 0;
  const channel::Entry& entry;
  const std::string& program;
  uid_t user = 0;
  bool is_member = false;  // the channel belongs to an agent of this agent's user
};

class Service {
 public:
  virtual ~Service() = default;

  // ---- channels
  virtual void on_opened(const OpenedChannel&) {}
  // `usual`: the program has ended, or has closed it.
  virtual void on_closed(ChannelNumber, bool /*usual*/, TimeNs, Effects&) {}
  virtual void on_request(const Request&, TimeNs, Effects&) {}
  virtual void on_transfer(std::uint64_t /*token*/, Status, TimeNs, Effects&) {}
  // A descriptor arrived, or failed to. The first service that keeps it takes it; the others get an empty one.
  virtual void on_descriptor(ChannelNumber, std::uint64_t /*number*/, Result<Fd>&, TimeNs, Effects&) {}
  // The channel has so many pending requests that it should not send further ones.
  [[nodiscard]] virtual bool is_full(ChannelNumber) const { return false; }

  // ---- completions
  virtual void on_job(std::uint64_t /*token*/, Status, TimeNs, Effects&) {}
  virtual void on_answer(std::uint64_t /*token*/, Result<Answer>, TimeNs, Effects&) {}
  virtual void on_called(std::uint64_t /*token*/, Result<plugin::Outputs>, TimeNs, Effects&) {}
  virtual void on_stored(std::uint64_t /*token*/, Status, TimeNs, Effects&) {}

  // ---- time
  [[nodiscard]] virtual TimeNs next_deadline() const { return never; }
  virtual void on_time(TimeNs, Effects&) {}
  // Called after transfers of this service have ended and their program has been told: the place for slower work.
  virtual void on_transfers_told(TimeNs, Effects&) {}
  // At the end of each round over all channels. True: it did something.
  virtual bool on_round(TimeNs, Effects&) { return false; }

  // ---- memory
  [[nodiscard]] virtual bool waits_for_memory() const { return false; }
  virtual void on_memory_freed(TimeNs, Effects&) {}
};

}  // namespace offpath::service
