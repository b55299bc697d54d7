// A program's link that does nothing but note calls. The test is the agent: it reads and writes the channel's memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "link/link.h"
#include "wire/channel_layout.h"

namespace offpath::link {

class FakeHostLink final : public HostLink {
 public:
  explicit FakeHostLink(const wire::ChannelLayout& layout) : memory(layout.total_bytes()) {}

  [[nodiscard]] const LinkTraits& traits() const override { return kind; }
  [[nodiscard]] const wire::Welcome& welcome() const override { return welcomed; }
  [[nodiscard]] MutableBytes channel_memory() override { return memory; }
  Result<SegmentMemory> allocate(std::uint64_t) override { return fail(Error::unsupported, "no segments"); }
  Status announce_segment(RegionId segment, const SegmentMemory&, TimeNs) override {
    note("announce_segment", segment & ~wire::segment_flag);
    return answer();
  }
  void retire_segment(RegionId segment) override { note("retire_segment", segment & ~wire::segment_flag); }
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void*, std::uint64_t) override {
    note("announce", range, generation);
    OFP_TRY(answer());
    return 17;
  }
  void retire_range(RegionId range, std::uint32_t generation) override { note("retire", range, generation); }
  void withdraw_range(RegionId range, std::uint32_t generation) override { note("withdraw", range, generation); }
  [[nodiscard]] bool is_withdrawn(RegionId, std::uint32_t) override { return withdrawn; }
  Status offer_outside() override {
    note("offer");
    on_offer();
    return answer();
  }
  void withdraw_outside() override { note("take_back"); }
  void wake() override { note("wake"); }
  void wake_with(Bytes requests) override {
    note("wake_with");
    sent.assign(requests.begin(), requests.end());
  }
  void wait(TimeNs deadline) override {
    const auto act = on_wait;  // it may set another one
    act(deadline);
  }
  [[nodiscard]] int event_fd() const override { return event; }
  Status look() override {
    note("look");
    return answer();
  }
  void abandon() override {}
  void close() override {}

  // The calls since the last time, in order.
  std::vector<std::string> take_calls() { return std::exchange(calls_, {}); }

  std::vector<std::byte> memory;  // the channel segment
  LinkTraits kind;
  wire::Welcome welcomed;
  std::function<void(TimeNs)> on_wait = [](TimeNs) {};
  std::function<void()> on_offer = [] {};
  std::vector<std::byte> sent;  // with the last wake
  bool withdrawn = false;
  bool fails = false;
  int event = -1;

 private:
  template <class... Numbers>
  void note(std::string call, Numbers... numbers) {
    ((call += ' ' + std::to_string(numbers)), ...);
    calls_.push_back(std::move(call));
  }
  [[nodiscard]] Status answer() const { return fails ? Status(fail(Error::no_memory, "the link refuses")) : Status(); }

  std::vector<std::string> calls_;
};

}  // namespace offpath::link
