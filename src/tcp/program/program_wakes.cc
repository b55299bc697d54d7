#include "tcp/program/program_wakes.h"

#include <algorithm>

namespace offpath::tcp {

void ProgramWakes::look(Program& program) {
  program.area.take_sleepers(
      program.processes, [&](std::uint32_t process) { processes_.push_back({program.number, process}); },
      [&](std::uint32_t handle, const channel::SleepWord::Taken& taken) {
        add_threads({program.number, handle, taken});
      });
  // A process that is killed while it wakes threads of others leaves them asleep, although they have missed a change.
  if (!program.wakes_left_at) return;
  std::uint32_t handle = *program.wakes_left_at;
  const std::uint32_t end = std::min(program.held.end(), handle + handles_of_a_round);
  for (; handle < end; ++handle) {
    const Held* const held = program.held.find(handle);
    if (held == nullptr || held->is == Held::Is::free) continue;
    if (const auto taken = program.area.unfinished_wake(handle)) add_threads({program.number, handle, *taken});
  }
  program.wakes_left_at = end < program.held.end() ? std::optional(end) : std::nullopt;
}

// A wake under way is replaced by a later one of its word, which wakes its sleepers, too.
void ProgramWakes::add_threads(Threads threads) {
  for (std::size_t i = 0; i < repeated_; ++i) {
    Threads& under_way = threads_[i];
    if (under_way.program != threads.program || under_way.handle != threads.handle) continue;
    under_way.taken = threads.taken;
    return;
  }
  threads_.push_back(threads);
}

void ProgramWakes::wake_threads(const ProgramTable& programs) {
  std::erase_if(threads_, [&](const Threads& threads) {
    const Program* const program = programs.find(threads.program);
    return program == nullptr || program->area.memory().empty() ||
           !program->area.sleep_word(threads.handle).wake(threads.taken, threads_of_a_wake);
  });
  repeated_ = threads_.size();
}

}  // namespace offpath::tcp
