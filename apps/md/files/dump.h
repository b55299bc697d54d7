// Snapshots as text: XYZ, and LAMMPS's dump format.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "md/files/snapshot.h"
#include "md/ranks/domain.h"

namespace md {

class DumpFile {
 public:
  enum class Format { xyz, lammps };
  // Starts the file again, or appends to it. Throws BadInput if it cannot be written.
  DumpFile(const std::string& path, Format format, bool append);
  void write(std::int64_t step, const Box& box, std::span<const Particle> particles);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  Format format_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace md
