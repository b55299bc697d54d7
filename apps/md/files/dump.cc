#include "md/files/dump.h"

#include <cinttypes>
#include <cstring>

#include "md/files/bad_input.h"

namespace md {

DumpFile::DumpFile(const std::string& path, Format format, bool append)
    : path_(path), format_(format), file_(std::fopen(path.c_str(), append ? "a" : "w")) {
  if (!file_) throw BadInput(path + ": cannot be written: " + std::strerror(errno));
}

void DumpFile::write(std::int64_t step, const Box& box, std::span<const Particle> particles) {
  std::FILE* file = file_.get();
  if (format_ == Format::xyz) {
    std::fprintf(file, "%zu\nstep %" PRId64 "\n", particles.size(), step);
    for (const Particle& p : particles) std::fprintf(file, "%d %.9g %.9g %.9g\n", p.type + 1, p.x[0], p.x[1], p.x[2]);
  } else {
    std::fprintf(file, "ITEM: TIMESTEP\n%" PRId64 "\nITEM: NUMBER OF ATOMS\n%zu\nITEM: BOX BOUNDS pp pp pp\n", step,
                 particles.size());
    for (std::size_t d = 0; d < 3; ++d) std::fprintf(file, "%.17g %.17g\n", box.low[d], box.high[d]);
    std::fprintf(file, "ITEM: ATOMS id type x y z vx vy vz fx fy fz\n");
    for (const Particle& p : particles) {
      std::fprintf(file, "%d %d", p.id, p.type + 1);
      for (const auto* three : {&p.x, &p.v, &p.f})
        std::fprintf(file, " %.17g %.17g %.17g", (*three)[0], (*three)[1], (*three)[2]);
      std::fputc('\n', file);
    }
  }
  if (std::fflush(file) != 0 || std::ferror(file) != 0)
    throw BrokenRun(path_ + ": cannot be written: " + std::strerror(errno));
}

}  // namespace md
