#include "tcp/program/program_table.h"

#include <algorithm>

namespace offpath::tcp {

Program& ProgramTable::add(std::uint64_t number, const wire::TcpAreaLayout& layout, std::uint32_t core,
                           const ProgramUser& who, ProgramMemory memory, std::shared_ptr<RingBlocks> blocks) {
  Program& program =
      programs_.try_emplace(number, number, layout, core, who, std::move(memory), std::move(blocks)).first->second;
  program.place = take_place(program);
  return program;
}

std::uint32_t ProgramTable::take_place(Program& program) {
  auto free = std::ranges::find(places_, nullptr);
  if (free == places_.end()) free = places_.insert(free, nullptr);
  *free = &program;
  return static_cast<std::uint32_t>(free - places_.begin());
}

void ProgramTable::remove(Program& program, Stack& stack, TimeNs now) {
  const bool is_over = end_some(program, stack, now);
  auto node = programs_.extract(program.number);
  if (!is_over) return leaving_.push_back(std::move(node));
  places_[program.place] = nullptr;
}

bool ProgramTable::end_flows(Stack& stack, TimeNs now) {
  may_end_ = ends_of_a_round;
  std::erase_if(leaving_, [&](auto& node) {
    Program& program = node.mapped();
    static_cast<void>(program.area.attach(program.memory()));
    if (!end_some(program, stack, now)) return false;
    places_[program.place] = nullptr;
    return true;
  });
  return !leaving_.empty();
}

// Ends the program's next flows. True: those were the last.
bool ProgramTable::end_some(Program& program, Stack& stack, TimeNs now) {
  const std::uint32_t end = std::min(program.held.end(), program.left + handles_of_a_round);
  for (; program.left < end && may_end_ > 0 && stack.has_stray_room(); program.held.drop(program.left++)) {
    const Held* const held = program.held.find(program.left);
    if (held == nullptr || held->is != Held::Is::flow) continue;
    --may_end_;
    const Flow* const flow = stack.flow(held->id);
    // The memory is gone that a retransmission would need: only a flow whose bytes were all acknowledged ends with FIN.
    if (flow != nullptr && flow->acknowledged == held->offered && program.has_read(program.left, flow))
      stack.release(held->id, now, false);
    else
      stack.abort(held->id, now);
  }
  return program.left == program.held.end();
}

}  // namespace offpath::tcp
