// A session of a program's tasks: its lane, its lines in the program's memory, and inputs that stay; and a task. Read
// task_service.h first.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "plugin/call.h"
#include "service/effects.h"
#include "task/resident_memory.h"
#include "wire/messages/task_messages.h"
#include "wire/region.h"

namespace offpath::task {

struct Input {
  std::vector<wire::BufferRef> sources;  // one behind the other
  std::uint64_t bytes, version, changed_from, changed_at, changed_bytes;
  std::string name;
  std::uint64_t given = 0;  // bytes of `sources`; fewer than `bytes`: it has to be there already
  MemoryPtr memory{};       // set when its pull starts
};

struct Output {
  wire::BufferRef target;
  std::uint64_t bytes_max, version;
  std::string name;
  std::uint64_t bytes = 0;  // made by the function
  TargetPtr room{};         // set when the task starts; none if it stays on the agent
};

// Memory of an output, mapped during its push.
class MappedOutput {
 public:
  [[nodiscard]] static Result<MappedOutput> map(int fd, std::uint64_t bytes);
  MappedOutput(MappedOutput&& other) noexcept;
  MappedOutput& operator=(MappedOutput&&) = delete;
  ~MappedOutput();
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

 private:
  MappedOutput(std::byte* data, std::uint64_t bytes) noexcept : data_(data), bytes_(bytes) {}
  std::byte* data_;
  std::uint64_t bytes_;
};

struct Session;

struct Task {
  enum class State : std::uint8_t { waiting, pulling, ready, calling, pushing, over } state = State::waiting;
  std::uint64_t number = 0;  // in the order of submission
  Session* session = nullptr;
  std::uint64_t ticket = 0;
  std::uint32_t line = 0;
  TimeNs deadline = never;
  std::string plugin, function;
  std::vector<std::uint64_t> after;   // tickets, as submitted
  std::size_t waits_for = 0;          // the number of them that have not ended
  std::vector<std::uint64_t> before;  // numbers of the tasks that wait for this one
  struct Reason {
    std::uint64_t ticket = 0;
    std::string why;
  };
  std::optional<Reason> because{};  // the first of the earlier tasks that failed
  std::uint64_t room_bytes = 0;     // needed by the waiting task
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<std::byte> arguments;
  bool pulled = false;                     // and the program was notified
  std::vector<std::uint64_t> who_waits{};  // tickets of requests that wait for this
  TimeNs since = 0;                        // of its state
  wire::TaskDone times{};
  std::shared_ptr<plugin::CallReport> report{};
  std::vector<MappedOutput> mapped{};

  [[nodiscard]] std::string name() const { return fmt::format("{}/{}", plugin, function); }
};

struct Session {
  std::uint64_t number = 0;
  service::ChannelNumber channel = 0;
  std::uint32_t lane = wire::task_any_lane, lanes = 0;
  std::shared_ptr<const std::string> team{};  // for plugin::Call; null: none
  wire::BufferRef lines;
  struct OwnPlugin {
    std::shared_ptr<const plugin::PluginOptions> plugin;  // which may run
    std::string refused;                                  // or the reason why not
  };
  std::map<std::string, OwnPlugin> plugins{};  // named by the program
  ResidentMemory resident;
  std::vector<std::unique_ptr<Task>> tasks;  // in the order of submission
  bool dirty = false;                        // a task of it may be able to continue
  bool looks_again = false;                  // at no known time: an abandoned call uses its memory
  [[nodiscard]] bool is_ordered() const noexcept { return lane != wire::task_any_lane; }
};

}  // namespace offpath::task
