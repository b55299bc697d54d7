// The agent as a member of a group: its name and address there, its connections to others, and its leaving.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/cores/core_ends.h"
#include "group/group.h"
#include "loop/job_pool.h"
#include "loop/loop.h"

namespace offpath::agent {

class AgentGroup {
 public:
  // `process`: its number, by which members know a successor of the same name. `core`: null for an agent with one loop.
  // Everything outlives this.
  AgentGroup(const AgentSettings& settings, std::uint64_t process, const CoreEnds* core,
             std::shared_ptr<link::CardDevices> devices, loop::Loop& loop);

  // Connects to the agents that the same launcher started, which do the same at this moment. Before make().
  [[nodiscard]] Status meet_launched();
  void make();
  [[nodiscard]] group::Group& group() noexcept { return *group_; }
  [[nodiscard]] const group::Group& group() const noexcept { return *group_; }

  // Tells other members that this one leaves, so that they need not detect it. Waits a moment at most for them to read
  // it.
  void leave();

 private:
  [[nodiscard]] group::Identity identity() const;
  [[nodiscard]] std::map<std::string, std::string> addresses_near() const;

  const AgentSettings& settings_;
  const std::uint64_t process_;
  const CoreEnds* const core_;
  std::shared_ptr<link::CardDevices> devices_;
  loop::Loop& loop_;
  std::vector<std::string> launched_;  // addresses
  std::unique_ptr<group::Group> group_;
  std::unique_ptr<loop::JobPool> connecting_;  // to other members; threads of its own, as each may wait for seconds
};

}  // namespace offpath::agent
