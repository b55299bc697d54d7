#include "md/ranks/halo_swaps.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "md/atoms.h"
#include "md/files/bad_input.h"

namespace md {
namespace {

// The heads before the indices of the sent atoms of all swaps, one for each swap.
struct Head {
  std::uint32_t axis, to, from, zero;
  double shift;
  std::uint64_t sent, received;
};
constexpr std::size_t head_words = sizeof(Head) / sizeof(std::uint32_t);
static_assert(sizeof(Head) == 40);

// There are six, and more where a part of the box is narrower than the halo.
constexpr std::uint32_t swaps_max = 4096;

template <class T>
void append(Array<std::uint32_t>& flat, const T* from, std::size_t count) {
  static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
  if (count == 0) return;
  const std::size_t before = flat.size();
  flat.resize(before + count * (sizeof(T) / sizeof(std::uint32_t)));
  std::memcpy(flat.data() + before, from, count * sizeof(T));
}

}  // namespace

void HaloSwaps::update_positions(RankMessages& messages, double* x) {
  for (const HaloSwap& swap : swaps_) {
    double* ghosts = x + values * swap.received_first;
    const bool alone = swap.to == messages.rank();
    if (!alone) out_.resize(values * swap.sent.size());
    double* out = alone ? ghosts : out_.data();
    std::array<double, values> shift{};
    shift[static_cast<std::size_t>(swap.axis)] = swap.shift;
    for (std::size_t k = 0; k < swap.sent.size(); ++k) {
      const double* source = x + values * static_cast<std::size_t>(swap.sent[k]);
      for (std::size_t d = 0; d < values; ++d) out[values * k + d] = source[d] + shift[d];
    }
    if (alone) continue;
    messages.exchange(swap.to, std::as_bytes(std::span(out_.data(), out_.size())), swap.from,
                      std::as_writable_bytes(std::span(ghosts, values * swap.received)));
  }
}

void HaloSwaps::update_values(RankMessages& messages, double* number) {
  for (const HaloSwap& swap : swaps_) {
    out_.resize(swap.sent.size());
    for (std::size_t k = 0; k < swap.sent.size(); ++k) out_[k] = number[swap.sent[k]];
    messages.exchange(swap.to, std::as_bytes(std::span(out_.data(), out_.size())), swap.from,
                      std::as_writable_bytes(std::span(number + swap.received_first, swap.received)));
  }
}

void HaloSwaps::flatten(Array<std::uint32_t>& flat) const {
  flat.resize(0);
  flat.append(static_cast<std::uint32_t>(swaps_.size()));
  for (const HaloSwap& swap : swaps_) {
    const Head head{static_cast<std::uint32_t>(swap.axis),
                    static_cast<std::uint32_t>(swap.to),
                    static_cast<std::uint32_t>(swap.from),
                    0,
                    swap.shift,
                    swap.sent.size(),
                    swap.received};
    append(flat, &head, 1);
  }
  for (const HaloSwap& swap : swaps_) append(flat, swap.sent.data(), swap.sent.size());
}

HaloSwaps HaloSwaps::from_flat(const std::uint32_t* flat, std::size_t words, std::size_t own, std::size_t all,
                               const RankMessages& messages) {
  const auto count = static_cast<std::size_t>(words == 0 ? swaps_max + 1 : flat[0]);
  if (count > swaps_max || words < 1 + count * head_words) throw BadInput("a halo cut short");
  HaloSwaps halo;
  const std::uint32_t* index = flat + 1 + count * head_words;
  std::size_t left = words - 1 - count * head_words, atoms = own;
  for (std::size_t n = 0; n < count; ++n) {
    Head head{};
    std::memcpy(&head, flat + 1 + n * head_words, sizeof head);
    const auto ranks = static_cast<std::uint32_t>(messages.count()), self = static_cast<std::uint32_t>(messages.rank());
    if (head.axis > 2 || head.to >= ranks || head.from >= ranks)
      throw BadInput("a halo with a rank that does not exist");
    // Copies of own atoms are written where they are kept.
    const bool unequal = head.to == self && (head.from != self || head.sent != head.received);
    if (unequal || head.sent > left || head.received > all - atoms) throw BadInput("a halo of other atoms");
    HaloSwap swap{static_cast<int>(head.axis),
                  static_cast<int>(head.to),
                  static_cast<int>(head.from),
                  head.shift,
                  {},
                  atoms,
                  head.received};
    swap.sent.assign(index, index + head.sent);
    const bool known = std::ranges::all_of(
        swap.sent, [&](std::int32_t atom) { return atom >= 0 && static_cast<std::size_t>(atom) < atoms; });
    if (!known) throw BadInput("a halo of atoms that do not exist");
    index += head.sent;
    left -= head.sent;
    atoms += head.received;
    halo.add(std::move(swap));
  }
  if (left != 0 || atoms != all) throw BadInput("a halo of other atoms");
  return halo;
}

}  // namespace md
