// An agent's link that maps nothing and has no events. Tests override what they look at.
#pragma once

#include "link/link.h"

namespace offpath::link {

class FakeAgentLink : public AgentLink {
 public:
  [[nodiscard]] const LinkTraits& traits() const override { return kind; }
  Status attach_range(RegionId, std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t) override { return {}; }
  Status detach_range(RegionId, std::uint32_t) override { return {}; }
  [[nodiscard]] MutableBytes mapped(RegionId) override { return {}; }
  void wake() override { ++wakes; }
  Status hand_over(std::uint64_t, int) override { return fail(Error::unsupported, "nothing is handed over here"); }
  std::size_t poll(TimeNs, std::span<LinkEvent>) override { return 0; }
  [[nodiscard]] int event_fd() const override { return -1; }
  void refuse(const Failure& why) override { told = why.message; }
  void close() override {}

  LinkTraits kind{.name = "fake", .one_sided = true, .staged = false, .host_threads = 0, .reason = "a test"};
  unsigned wakes = 0;
  std::string told;
};

}  // namespace offpath::link
