// Wakes that are due after a round: processes of programs that sleep and have events, and threads that sleep on the
// word of one connection (connections/sleep_word.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tcp/program/program_table.h"

namespace offpath::tcp {

class ProgramWakes {
 public:
  // A process that is to be woken: asleep, with events. For a process that has ended, its event is written, and the
  // other processes must be notified, asleep or not.
  struct Process {
    std::uint64_t program;
    std::uint32_t process;
    friend bool operator==(const Process&, const Process&) noexcept = default;
  };
  // So many threads of each word are woken in a round, as a program may have thousands. The others follow in the next.
  static constexpr int threads_of_a_wake = 64;
  static constexpr std::uint32_t handles_of_a_round = 4096;  // looked at for wakes that were left undone

  void add(Process process) { processes_.push_back(process); }
  // After the program's events of a round.
  void look(Program& program);
  // A process of the program has ended: it may have begun wakes of other threads that it cannot finish.
  static void look_for_unfinished(Program& program) noexcept { program.wakes_left_at = 0; }

  [[nodiscard]] std::vector<Process> take() noexcept { return std::exchange(processes_, {}); }
  // Wakes threads on words in the programs' areas, as they are mapped now.
  void wake_threads(const ProgramTable& programs);
  [[nodiscard]] bool empty() const noexcept { return processes_.empty() && threads_.empty(); }

 private:
  struct Threads {  // by the handle: the memory of an area may be mapped anew, or go away with its program
    std::uint64_t program;
    std::uint32_t handle;
    channel::SleepWord::Taken taken;
  };
  void add_threads(Threads threads);

  std::vector<Process> processes_;
  std::vector<Threads> threads_;
  std::size_t repeated_ = 0;  // the first ones: more threads slept than one round wakes
};

}  // namespace offpath::tcp
