#include "md/files/snapshot.h"

#include <algorithm>

namespace md {

std::vector<Particle> gather_particles(const Atoms& atoms, Ranks& ranks) {
  std::vector<Particle> own(atoms.own);
  for (std::size_t i = 0; i < atoms.own; ++i) {
    own[i].id = atoms.id[i];
    own[i].type = atoms.type[i];
    for (std::size_t d = 0; d < 3; ++d) {
      own[i].x[d] = atoms.x[values * i + d];
      own[i].v[d] = atoms.v[values * i + d];
      own[i].f[d] = atoms.f[values * i + d];
    }
  }
  std::vector<Particle> all;
  for (const std::vector<std::byte>& part : ranks.gather(std::as_bytes(std::span(own)))) {
    const std::size_t before = all.size(), count = part.size() / sizeof(Particle);
    all.resize(before + count);
    if (count > 0) std::memcpy(all.data() + before, part.data(), count * sizeof(Particle));
  }
  std::sort(all.begin(), all.end(), [](const Particle& a, const Particle& b) { return a.id < b.id; });
  return all;
}

}  // namespace md
