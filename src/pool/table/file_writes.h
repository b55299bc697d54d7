// Writes pools into files of programs. The request comes through the ring and its descriptor over the socket, in any
// order. Jobs write, one for each user at a time, so slow disks and large pools leave a thread for others.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "channel/ring.h"
#include "pool/table/query_source.h"
#include "service/effects.h"

namespace offpath::pool {

using service::ChannelNumber;
using service::Effects;

class FileWrites {
 public:
  class Objects {
   public:
    [[nodiscard]] virtual Status may_read(const std::string& pool, uid_t user) const = 0;
    // The visible objects, in storing order. The pool existed when the write was requested, and may be gone.
    [[nodiscard]] virtual Result<std::vector<QuerySource>> visible(const std::string& pool, uid_t user) const = 0;

   protected:
    ~Objects() = default;
  };
  // `offer_wait_ns`: how long a request waits for its descriptor.
  FileWrites(const Objects& objects, TimeNs offer_wait_ns) : objects_(objects), offer_wait_ns_(offer_wait_ns) {}

  void on_channel_closed(ChannelNumber channel);
  void on_request(ChannelNumber channel, uid_t user, const channel::Entry& request, TimeNs now, Effects& effects);
  // A descriptor of a program arrived on an open channel; `fd` may be the error that refused it.
  void on_offer(ChannelNumber channel, std::uint64_t number, Result<Fd> fd, Effects& effects);
  // Empty if it has not come.
  [[nodiscard]] Fd take_offer(ChannelNumber channel, std::uint64_t number);
  void on_job(std::uint64_t token, Status status, Effects& effects);
  void on_time(TimeNs now, Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept { return waiting_.empty() ? never : waiting_.front().deadline; }

  void add_pools(std::set<std::string_view>& names) const;  // of writes that wait for their descriptors
  [[nodiscard]] std::uint64_t written_bytes() const noexcept { return written_bytes_; }

 private:
  struct Write {
    ChannelNumber channel;
    std::uint64_t ticket;
    uid_t user;
    std::string pool;
    std::uint64_t offer;
    TimeNs deadline;
  };
  // State that a job shares with this.
  struct Progress {
    std::atomic<bool> cancelled{false};
    std::uint64_t bytes = 0;
  };
  struct Job {
    ChannelNumber channel;
    std::uint64_t ticket;
    uid_t user;
    std::shared_ptr<Progress> progress;
  };
  struct Later {
    Write write;
    Fd descriptor;
  };

  void begin(const Write& write, Result<Fd> offered, Effects& effects);
  void start(const Write& write, Fd descriptor, Effects& effects);
  [[nodiscard]] Status may_write(uid_t user);

  const Objects& objects_;
  TimeNs offer_wait_ns_;
  std::unordered_map<ChannelNumber, std::map<std::uint64_t, Result<Fd>>> offers_;  // by number, which grows
  std::vector<Write> waiting_;                        // for their descriptors, one of each channel
  std::deque<Later> later_;                           // that wait for another write of their user
  std::unordered_map<std::uint64_t, Job> jobs_;       // by token
  std::map<uid_t, std::weak_ptr<Progress>> hanging_;  // timed out; their jobs use these until they end
  std::uint64_t next_token_ = 1;
  std::uint64_t written_bytes_ = 0;
};

}  // namespace offpath::pool
