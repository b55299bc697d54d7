// Frames in memory by (pool, row, column): what `local:` pools are for now. Requests for an object that is not
// there yet wait here until it is stored or their deadline passes.
//
// A pool belongs to the user whose stream or request named it first; another user gets Error::denied.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "channel/ring.h"
#include "mover/effects.h"
#include "mover/mover.h"
#include "pool/query_run.h"

namespace offpath::pool {

using mover::ChannelNumber;
using mover::Effects;
using mover::FramePtr;

struct FrameTableCounters {
  std::uint64_t pools = 0, frames = 0, bytes = 0, puts = 0, gets = 0, drops = 0, waiting = 0, leases = 0;
  std::uint64_t written_bytes = 0;
};

class FrameTable final : public mover::Store {
 public:
  struct Limits {
    std::size_t waiting_max = 65536;
    std::size_t leases_max = 65536;  // of one channel
    TimeNs offer_wait_ns = second_ns;  // for the descriptor of a write that was asked for already
  };
  explicit FrameTable(const Limits& limits) : limits_(limits) {}

  // ---- Store
  [[nodiscard]] Status admit(const std::string& pool, uid_t user) override;
  [[nodiscard]] Status put(const Place& place, FramePtr frame, TimeNs now, Effects& effects) override;
  [[nodiscard]] Result<FramePtr> find(const std::string& pool, const std::string& row_key,
                                      const std::string& column_key, uid_t user) override;
  void end_step(const std::string& pool, const std::string& row_key, std::uint32_t rank, std::uint32_t ranks,
                TimeNs now, Effects& effects) override;

  // What a query is to read: visible objects whose keys match, in the order of storing.
  [[nodiscard]] Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view row_glob,
                                                        std::string_view column_glob, uid_t user);

  // Removes visible and hidden objects whose keys match; returns how many.
  [[nodiscard]] Result<std::uint64_t> drop(const std::string& pool, std::string_view row_glob, std::string_view column_glob,
                                           uid_t user);

  // ---- requests: pool_get, pool_list, pool_drop, pool_write, release
  void on_channel_open(ChannelNumber channel, uid_t user);
  void on_channel_closed(ChannelNumber channel);
  void on_request(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects);
  void on_offer(ChannelNumber channel, std::uint64_t number, Fd fd, Effects& effects);
  void on_transfer(ChannelNumber channel, std::uint64_t token, Status status, Effects& effects);
  void on_job(std::uint64_t token, Status status, Effects& effects);
  void on_time(TimeNs now, Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  [[nodiscard]] const FrameTableCounters& counters() const noexcept { return counters_; }
  struct PoolStatus {
    std::string name;
    uid_t user;
    std::uint64_t frames, bytes, rows;
  };
  [[nodiscard]] std::vector<PoolStatus> pools() const;

 private:
  using Keys = std::pair<std::string, std::string>;  // row, column
  struct Object {
    FramePtr frame;
    std::uint64_t sequence;  // 0 while hidden
    std::uint64_t keep;      // as its stream said
    bool hidden;             // until its step has ended on all ranks
  };
  struct Step {
    std::set<std::uint32_t> ended;
    std::uint32_t ranks = 0;
  };
  struct Pool {
    uid_t user = 0;
    std::map<Keys, Object> objects;
    std::map<std::uint64_t, Keys> by_sequence;  // those readers see, in the order in which they came to
    std::map<std::string, Step> steps;  // not ended on all ranks yet
    std::uint64_t bytes = 0;
  };
  struct Waiting {
    ChannelNumber channel;
    std::uint64_t ticket;
    std::string pool;
    Keys keys;
    wire::RegionId segment;
    TimeNs deadline;
  };
  struct Channel {
    uid_t user = 0;
    std::unordered_map<std::uint64_t, FramePtr> leases;
    std::unordered_map<std::uint64_t, Fd> offers;
  };
  // The request comes through the ring, its descriptor over the socket: either may be seen first. One for each channel.
  struct Write {
    ChannelNumber channel;
    std::uint64_t ticket;
    std::string pool;
    std::uint64_t offer;
    TimeNs deadline;
  };
  struct Transfer {  // a push, or a job that writes
    ChannelNumber channel;
    std::uint64_t ticket;
    wire::Got got{};
    std::shared_ptr<std::uint64_t> written;
  };

  [[nodiscard]] Result<Pool*> open(const std::string& name, uid_t user);
  [[nodiscard]] Result<Pool*> existing(const std::string& name, uid_t user);
  void get(Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now, Effects& effects);
  void list(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects);
  void drop(Channel& channel, const channel::Entry& request, ChannelNumber number, Effects& effects);
  void write(Channel& channel, const channel::Entry& request, ChannelNumber number, TimeNs now, Effects& effects);
  void begin_write(const Write& write, const Channel& channel, Fd descriptor, Effects& effects);
  void answer(const Waiting& waiting, const FramePtr& frame, Effects& effects);
  void serve_waiting(const std::string& pool, const Keys& keys, const FramePtr& frame, Effects& effects);
  void remove(Pool& pool, std::map<Keys, Object>::iterator at);
  void show(const std::string& name, Pool& pool, std::map<Keys, Object>::iterator at, Effects& effects);
  void keep_newest(Pool& pool, std::uint64_t keep);
  [[nodiscard]] std::string describe_absence(const Waiting& waiting) const;

  Limits limits_;
  std::map<std::string, Pool> pools_;
  std::unordered_map<ChannelNumber, Channel> channels_;
  std::vector<Waiting> waiting_;
  std::vector<Write> writes_;  // that wait for their descriptors
  std::unordered_map<std::uint64_t, Transfer> transfers_;
  std::uint64_t next_sequence_ = 1, next_lease_ = 1, next_token_ = 1;
  FrameTableCounters counters_;
};

}  // namespace offpath::pool
