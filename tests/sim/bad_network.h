// Networks as seeds draw them: loss, duplicates, damage, reordering, delay, a bottleneck, routers that mark.
#pragma once

#include "testing/link/seeded_random.h"
#include "testing/tcp/impaired_path.h"

namespace offpath::sim {

struct NetworkRandom : link::SeededRandom {
  using link::SeededRandom::SeededRandom;
  std::uint64_t size_up_to(unsigned bits) { return 1 + below(1ull << (1 + below(bits))); }

  tcp::Impairments impairments() {
    tcp::Impairments bad;
    if (chance(0.8)) bad.loss = static_cast<double>(below(51)) / 1000;
    if (chance(0.5)) bad.duplicate = static_cast<double>(below(30)) / 1000;
    if (chance(0.5)) bad.corrupt = static_cast<double>(below(20)) / 1000;
    if (chance(0.5)) bad.reorder = static_cast<double>(below(100)) / 1000;
    bad.delay_ns = static_cast<TimeNs>(below(1 + (chance(0.5) ? 20 : 1) * millisecond_ns));
    bad.reorder_ns = 1 + static_cast<TimeNs>(below(5 * millisecond_ns));
    if (chance(0.3)) bad.bytes_per_second = 1'000'000 + below(100'000'000), bad.queue_bytes = 20'000 + below(500'000);
    if (chance(0.5)) bad.mark_bytes = 5'000 + below(100'000);
    return bad;
  }
};

}  // namespace offpath::sim
