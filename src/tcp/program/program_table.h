// The programs with connections, by number and by the tags of their flows. A program that has left with many flows
// keeps its place until the last of them has ended, as flows outlive their programs for a while.
//
// A flow's tag: its program's place, the lowest bits of the program's number, and the handle. A place is used again;
// the number then tells the programs apart.
#pragma once

#include <map>
#include <vector>

#include "tcp/program/program.h"
#include "tcp/program/service_core.h"

namespace offpath::tcp {

class ProgramTable {
 public:
  // Null: there is none. A search; not for the path of a segment.
  [[nodiscard]] Program* find(std::uint64_t number) noexcept {
    const auto found = programs_.find(number);
    return found == programs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const Program* find(std::uint64_t number) const noexcept {
    return const_cast<ProgramTable*>(this)->find(number);
  }
  // Those that have not left, by number.
  [[nodiscard]] auto begin() noexcept { return programs_.begin(); }
  [[nodiscard]] auto end() noexcept { return programs_.end(); }
  [[nodiscard]] auto begin() const noexcept { return programs_.begin(); }
  [[nodiscard]] auto end() const noexcept { return programs_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return programs_.size() + leaving_.size(); }  // of all
  template <class Visit>
  void for_each(const Visit& visit) const {  // of all
    for (const auto& [number, program] : programs_) visit(program);
    for (const auto& node : leaving_) visit(node.mapped());
  }

  // `number` is not in the table.
  Program& add(std::uint64_t number, const wire::TcpAreaLayout& layout, std::uint32_t core, const ProgramUser& who,
               ProgramMemory memory, std::shared_ptr<RingBlocks> blocks);

  // ---- programs that leave
  // A round ends so many flows of programs that have left: their last segments find room (FrameQueue::strays_max), and
  // other programs do not wait for thousands of them.
  static constexpr unsigned ends_of_a_round = 256;
  static constexpr std::uint32_t handles_of_a_round = 16 * ends_of_a_round;  // looked at
  // Its flows end: those whose bytes have all arrived with FIN, others with RST. None of its handles has a port.
  void remove(Program& program, Stack& stack, TimeNs now);
  // In each round. True: flows of programs that have left are still to end.
  bool end_flows(Stack& stack, TimeNs now);
  [[nodiscard]] bool has_leaving() const noexcept { return !leaving_.empty(); }

  // ---- tags
  static constexpr unsigned place_bits = 16, handle_bits = 20, number_bits = 64 - place_bits - handle_bits;
  static_assert(wire::tcp_flows_max == 1u << handle_bits);
  [[nodiscard]] static std::uint64_t tag_of(const Program& program, std::uint32_t handle) noexcept {
    return (std::uint64_t{program.place} << number_bits | part_of(program.number)) << handle_bits | handle;
  }
  [[nodiscard]] static std::uint32_t handle_of(std::uint64_t tag) noexcept {
    return static_cast<std::uint32_t>(tag & ((1u << handle_bits) - 1));
  }
  [[nodiscard]] Program* of_tag(std::uint64_t tag) const noexcept {  // null: the program has ended
    const std::uint64_t place = tag >> (64 - place_bits);
    Program* const program = place < places_.size() ? places_[place] : nullptr;
    return program != nullptr && part_of(program->number) == part_of(tag >> handle_bits) ? program : nullptr;
  }
  // The handle behind a flow's tag; null if its program has ended or the handle belongs to another flow by now.
  [[nodiscard]] static Held* held_of(Program* program, std::uint64_t tag, FlowId flow) noexcept {
    Held* const held = program != nullptr ? program->held.find(handle_of(tag)) : nullptr;
    return held != nullptr && held->is == Held::Is::flow && held->id == flow ? held : nullptr;
  }

 private:
  using Table = std::map<std::uint64_t, Program>;
  [[nodiscard]] static std::uint64_t part_of(std::uint64_t number) noexcept {
    return number & ((1ull << number_bits) - 1);
  }
  [[nodiscard]] std::uint32_t take_place(Program& program);
  bool end_some(Program& program, Stack& stack, TimeNs now);

  Table programs_;
  std::vector<Table::node_type>
      leaving_;                   // they have more flows than end in a round, and are in no table but `places_`
  std::vector<Program*> places_;  // null: free
  unsigned may_end_ = ends_of_a_round;
};

}  // namespace offpath::tcp
