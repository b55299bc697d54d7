// The times at which stages of TCP's processing were reached, in a file that other processes map: `offpath bench tcp
// --breakdown` combines them with the program's and the client's own. Off unless tcp.trace_file names a file; each
// stage then costs a read of the clock.
//
//   0 magic u64 | 8 capacity u64 | 16 count u64, of all ever noted | 64 records, `capacity` of them in a ring:
//   time i64 (CLOCK_MONOTONIC, ns) | stage u64
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "tcp/port/port_decorator.h"

namespace offpath::tcp {

class StageTrace {
 public:
  enum class Stage : std::uint64_t {
    received = 1,
    told,
    commanded,
    sent
  };  // frames; events to programs; commands of programs; frames

  struct Record {
    TimeNs at;
    Stage stage;
  };
  static constexpr std::uint64_t magic = 0x3130'6563'6172'744f;  // "Otrace01"
  static constexpr std::uint64_t capacity = 1 << 20;
  static constexpr std::size_t count_at = 16, records_at = 64, file_bytes = records_at + capacity * sizeof(Record);

  // The file is made, or emptied; only its owner may read it.
  [[nodiscard]] static Result<std::unique_ptr<StageTrace>> create(const std::string& path);
  ~StageTrace();
  StageTrace(const StageTrace&) = delete;
  StageTrace& operator=(const StageTrace&) = delete;

  void note(Stage stage) noexcept;

 private:
  explicit StageTrace(std::byte* memory) noexcept : memory_(memory) {}
  std::byte* memory_;
  std::uint64_t count_ = 0;
};

// A port whose frames are noted.
class TracedPort final : public PortDecorator {
 public:
  // Both outlive it.
  TracedPort(Port& inner, StageTrace& trace) noexcept : PortDecorator(inner), trace_(trace) {}

  std::size_t receive(std::span<ReceivedFrame> frames, TimeNs now) override {
    const std::size_t count = inner_.receive(frames, now);
    if (count > 0) trace_.note(StageTrace::Stage::received);
    return count;
  }
  std::size_t transmit(std::span<const FrameToSend> frames, TimeNs now) override {
    const std::size_t count = inner_.transmit(frames, now);
    if (count > 0) trace_.note(StageTrace::Stage::sent);
    return count;
  }

 private:
  StageTrace& trace_;
};

}  // namespace offpath::tcp
