// SPDX-License-Identifier: GPL-2.0-only
#include "analyst.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <utility>

#include "analysis_task.h"

namespace offpath_lammps {

namespace {

[[noreturn]] void give_up(std::chrono::nanoseconds wait) {
  ofp_error error{OFP_TIMEOUT, ""};
  std::snprintf(error.message, sizeof error.message, "no answer for %.0f s",
                std::chrono::duration<double>(wait).count());
  throw offpath::Error(error);
}

}  // namespace

Analyst::Analyst(const std::string& agent, const std::string& plugin, std::string output, std::size_t output_bytes,
                 std::chrono::nanoseconds wait)
    : plugin_(plugin),
      wait_(wait),
      channel_(std::in_place, agent, offpath::ConnectOptions{.name = "LAMMPS"}),
      announced_(std::in_place, *channel_),
      memory_(std::in_place, *channel_, output_bytes),
      tasks_(std::in_place, *channel_, offpath::TasksOptions{.plugins = {{analysis_plugin, plugin}}}) {
  request_.outputs = {{.name = std::move(output), .data = memory_->bytes().first(output_bytes)}};
}

void Analyst::ask(offpath::TaskRequest request) {
  request_.function = std::string(analysis_plugin) + "/" + request.function;
  request_.inputs = std::move(request.inputs);
  request_.arguments = request.arguments;
  request_.wait = wait_;
  output_.reset();
  read_ = false;
  if (!lost_.empty()) return run_here();
  try {
    announce();
    task_.emplace(tasks_->submit(request_));
  } catch (const offpath::Error& why) {
    lose(why.what());
  }
}

void Analyst::announce() {
  std::vector<std::span<const std::byte>> arrays;
  for (const offpath::TaskInput& each : request_.inputs) arrays.push_back(each.data);
  announced_->announce(arrays);
}

// Inputs are where they were as long as they are not this program's again.
void Analyst::own_again() {
  if (read_) return;
  try {
    if (!task_->wait_pulled(wait_)) give_up(wait_);
    read_ = true;
  } catch (const offpath::Error& why) {
    lose(why.what());
  }
}

std::optional<std::vector<std::byte>> Analyst::take() {
  if (task_) {
    try {
      if (!task_->wait(wait_)) give_up(wait_);
      const std::span<const std::byte> made = request_.outputs[0].data;
      output_.emplace(made.begin(), made.end());
      task_.reset();
      read_ = true;
    } catch (const offpath::Error& why) {
      if (why.code() == OFP_DENIED || why.code() == OFP_NOT_FOUND) throw;
      if (why.code() == OFP_TOO_LARGE && !runs_here()) throw;
      lose(why.what());
    }
  }
  return std::exchange(output_, std::nullopt);
}

// The memory that the agent has read may have changed since.
void Analyst::lose(const std::string& why) {
  lost_ = why;
  task_.reset();
  if (!read_) run_here();
}

// An input with a version is the agent's.
bool Analyst::runs_here() const {
  return std::ranges::none_of(request_.inputs, [](const offpath::TaskInput& each) { return each.version != 0; });
}

void Analyst::run_here() {
  read_ = true;
  if (!runs_here()) return;
  std::vector<std::byte> made(request_.outputs[0].data.size());
  offpath::TaskRequest request = request_;
  request.outputs[0].data = made;
  request.wait = offpath::Wait{0};
  try {
    offpath::Tasks(offpath::TasksOptions{.plugins = {{analysis_plugin, plugin_}}}).run(request);
    output_ = std::move(made);
  } catch (const offpath::Error& failed) {
    lost_ += std::string("; ") + failed.what();
  }
}

}  // namespace offpath_lammps
