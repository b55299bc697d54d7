// One kind of analysis: its requests to the agent, and the use of the answers. Read fix_offpath_analyse.h first.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <offpath/offpath.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "fix.h"
#include "pointers.h"

namespace offpath_lammps {

inline constexpr const char* analyse_style = "fix offpath/analyse";

// The bytes of the first `rows` rows of an array of LAMMPS, which may not have allocated it while there are none.
template <class T>
  requires std::is_arithmetic_v<T>
std::span<const std::byte> rows_of(const T* array, std::size_t rows) {
  static constexpr T none{};
  return rows == 0 ? std::as_bytes(std::span(&none, 1)).first(0) : std::as_bytes(std::span(array, rows));
}
inline std::span<const std::byte> rows_of(const double* const* table, std::size_t rows) {
  return rows_of(rows == 0 ? nullptr : table[0], rows * 3);
}

class Analysis : protected LAMMPS_NS::Pointers {
 public:
  Analysis(LAMMPS_NS::LAMMPS* lammps, const LAMMPS_NS::Fix& fix) : Pointers(lammps), fix_(fix) {}
  virtual ~Analysis() = default;

  // `rest` are the arguments behind its name. Returns how many it takes before keywords.
  virtual int parse(std::span<char*> rest) = 0;
  // False: it has no such keyword.
  virtual bool keyword(std::string_view name, const char* value) = 0;
  [[nodiscard]] virtual std::string keywords() const = 0;  // "cutoff, "
  // After the last keyword: sets the outputs of `fix` for LAMMPS.
  virtual void ready(LAMMPS_NS::Fix& fix) = 0;
  // As LAMMPS calls a fix.
  virtual void init() {}
  virtual void setup() {}
  virtual void atom_created(int) {}

  // Function, inputs and arguments of a task over the atoms as they are now. All processes call it. Its memory stays
  // unchanged until the inputs are pulled, arguments until the next call.
  [[nodiscard]] virtual offpath::TaskRequest request() = 0;
  [[nodiscard]] virtual std::string output_name() const = 0;
  [[nodiscard]] virtual std::size_t output_bytes() const = 0;
  // The output of this process. All processes call it if each has one, otherwise all call miss().
  virtual void take(std::span<const std::byte> answer) = 0;
  virtual void miss() {}
  // True, on all processes alike: nothing is to be asked any more.
  [[nodiscard]] virtual bool ended() const { return false; }
  // The consequence of a lost agent, for the log.
  [[nodiscard]] virtual const char* without_agent() const = 0;

  [[nodiscard]] virtual double value(int row, int column) const = 0;

 protected:
  // Ends LAMMPS if copies of atoms across the borders of the process's part of the box do not reach so far.
  void require_ghosts(double cutoff) const;

  const LAMMPS_NS::Fix& fix_;
};

}  // namespace offpath_lammps
