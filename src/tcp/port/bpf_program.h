// Writes eBPF programs, whose jumps go forward to labels. A program is made here and not compiled from C, because it
// contains the agent's addresses and core count as constants, and because no compiler for BPF is needed then.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace offpath::tcp {

class BpfProgram {
 public:
  class Label {
    friend class BpfProgram;
    std::vector<std::size_t> from_{};
  };

  void add(int code, int to, int from = 0, int offset = 0, std::int32_t immediate = 0) {
    steps_.push_back({static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(to & 15),
                      static_cast<std::uint8_t>(from & 15), static_cast<std::int16_t>(offset), immediate});
  }
  // Registers hold 64 bits. Arithmetic with constants is of their lower 32 bits, and clears the upper ones.
  void set(int to, std::int32_t value) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
  void copy(int to, int from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from); }
  void calculate(int operation, int to, std::int32_t value) { add(BPF_ALU | operation | BPF_K, to, 0, 0, value); }
  void combine(int operation, int to, int from) { add(BPF_ALU | operation | BPF_X, to, from); }
  void load(int size, int to, int from, int offset) { add(BPF_LDX | BPF_MEM | size, to, from, offset); }
  void to_host_order(int bits, int of) { add(BPF_ALU | BPF_END | BPF_TO_BE, of, 0, 0, bits); }
  void call(std::int32_t function) { add(BPF_JMP | BPF_CALL, 0, 0, 0, function); }
  void load_map(int to, int descriptor) {
    add(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, descriptor);
    add(0, 0);
  }
  void exit() { add(BPF_JMP | BPF_EXIT, 0); }

  // Of the lower 32 bits.
  void jump_if(int one, std::uint32_t value, Label& to) { jump(BPF_JMP32 | BPF_JEQ | BPF_K, one, 0, value, to); }
  void jump_unless(int one, std::uint32_t value, Label& to) { jump(BPF_JMP32 | BPF_JNE | BPF_K, one, 0, value, to); }
  // Of pointers: if `one` is beyond `other`.
  void jump_if_beyond(int one, int other, Label& to) { jump(BPF_JMP | BPF_JGT | BPF_X, one, other, 0, to); }
  void jump(Label& to) { jump(BPF_JMP | BPF_JA, 0, 0, 0, to); }
  void place(const Label& label) {  // here
    for (const std::size_t at : label.from_) {
      const std::size_t by = steps_.size() - at - 1;
      OFP_ASSERT(by <= static_cast<std::size_t>(std::numeric_limits<std::int16_t>::max()));
      steps_[at].off = static_cast<std::int16_t>(by);
    }
  }
  [[nodiscard]] std::vector<bpf_insn> take() noexcept { return std::move(steps_); }

 private:
  void jump(int code, int one, int other, std::uint32_t value, Label& to) {
    to.from_.push_back(steps_.size());
    add(code, one, other, 0, static_cast<std::int32_t>(value));
  }
  std::vector<bpf_insn> steps_;
};

}  // namespace offpath::tcp
