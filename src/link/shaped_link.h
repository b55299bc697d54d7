// shaped_link: slows any link down to the speed of a DPU's: a bandwidth for each direction and a latency for each
// operation. Data moves at once; its completion, and wakes, arrive when they would have on the device.
//
// Works in real or virtual time: an operation starts at the time of the last poll(now).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "link/held_events.h"
#include "link/link.h"

namespace offpath::link {

struct Profile {
  std::string name;
  std::uint64_t bandwidth_bytes_per_s = 0;  // each direction; 0: unlimited
  TimeNs latency_ns = 0;                    // of each operation, from the last byte; of each wake
  // The device's processor, which the agent's owner applies as a cgroup limit (docs/internals/link.md).
  unsigned cores = 0;         // 0: unlimited
  double core_speed = 1;      // speed of one of its cores, in cores of this machine
  bool maps_segments = true;  // a device across a bus cannot map the host's memory

  // CPU time that the agent may use for each second, in cores of this machine, if it runs on `threads` threads.
  [[nodiscard]] double cpu_quota(unsigned threads) const noexcept;
};

[[nodiscard]] Result<Profile> find_profile(std::string_view name);  // the error lists all names

class ShapedAgentLink final : public AgentLink {
 public:
  ShapedAgentLink(std::unique_ptr<AgentLink> inner, const Profile& profile);

  // The time of the next delayed event; `never` if there is none.
  [[nodiscard]] TimeNs next_event() const noexcept;

  [[nodiscard]] const LinkTraits& traits() const override { return traits_; }
  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override {
    return inner_->attach_range(range, generation, base, length, key);
  }
  Status detach_range(RegionId range, std::uint32_t generation) override {
    return inner_->detach_range(range, generation);
  }
  [[nodiscard]] MutableBytes mapped(RegionId segment) override;
  void read(std::uint64_t token, std::span<const ReadPiece> pieces) override;
  void write(std::uint64_t token, std::span<const WritePiece> pieces) override;
  void wake() override;
  Status hand_over(std::uint64_t ticket, int fd) override { return inner_->hand_over(ticket, fd); }
  std::size_t poll(TimeNs now, std::span<LinkEvent> events) override;
  [[nodiscard]] int event_fd() const override { return due_fd_.fd(); }
  void on_watched() override { inner_->on_watched(); }
  void on_readable() override { inner_->on_readable(); }
  [[nodiscard]] int wake_fd() const override { return inner_->wake_fd(); }
  void on_wake() override { inner_->on_wake(); }
  [[nodiscard]] int life_fd() const override { return inner_->life_fd(); }
  void refuse(const Failure& why) override { inner_->refuse(why); }
  void close() override;

 private:
  // One direction: bytes leave it in sequence.
  struct Pipe {
    TimeNs free_at = 0;
    std::uint64_t carry = 0;  // the fraction of a nanosecond, in units of 1 / bandwidth
  };
  [[nodiscard]] TimeNs due_after(Pipe& pipe, std::uint64_t bytes) noexcept;
  void take(LinkEvent event);
  void complete_after_end(LinkEvent::Kind kind, std::uint64_t token);

  std::unique_ptr<AgentLink> inner_;
  Profile profile_;
  LinkTraits traits_;
  HeldEvents held_;
  DueFd due_fd_;
  Pipe reads_, writes_;
  std::unordered_map<std::uint64_t, TimeNs> read_due_, write_due_;
  TimeNs now_ = 0;
  TimeNs last_due_ = 0;
  TimeNs wake_due_ = never;
  bool ended_ = false;  // `closed` is held or delivered
  bool done_ = false;   // `closed` was delivered
};

}  // namespace offpath::link
