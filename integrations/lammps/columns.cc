// SPDX-License-Identifier: GPL-2.0-only
#include "columns.h"

#include <stdexcept>

#include "atom.h"
#include "library.h"
#include "lmptype.h"

namespace offpath_lammps {

namespace {

bool is_table(int type) { return type == LAMMPS_INT_2D || type == LAMMPS_DOUBLE_2D || type == LAMMPS_INT64_2D; }

}  // namespace

AtomColumn find_column(LAMMPS_NS::Atom& atom, const std::string& name) {
  if (name == "mass") throw std::invalid_argument("mass is a value of each type, not of each atom; use rmass or type");
  const int type = atom.extract_datatype(name.c_str());
  AtomColumn column{name, {}, 0};
  switch (type) {
    case LAMMPS_INT:
    case LAMMPS_INT_2D:
      column.format = "i";
      column.row_bytes = sizeof(int);
      break;
    case LAMMPS_DOUBLE:
    case LAMMPS_DOUBLE_2D:
      column.format = "g";
      column.row_bytes = sizeof(double);
      break;
    case LAMMPS_INT64:
    case LAMMPS_INT64_2D:
      column.format = "l";
      column.row_bytes = sizeof(std::int64_t);
      break;
    default:
      throw std::invalid_argument("atoms have no property \"" + name + "\"");
  }
  if (is_table(type)) {
    const int values = atom.extract_size(name.c_str(), LMP_SIZE_COLS);
    if (values <= 0) throw std::invalid_argument("\"" + name + "\" has rows of different lengths");
    column.format = "+w:" + std::to_string(values) + column.format;
    column.row_bytes *= static_cast<std::size_t>(values);
  }
  if (atom.nmax > 0 && atom.extract(name.c_str()) == nullptr)
    throw std::invalid_argument("atoms of this atom_style have no property \"" + name + "\"");
  return column;
}

std::span<const std::byte> memory_of(LAMMPS_NS::Atom& atom, const AtomColumn& column) {
  if (atom.nmax == 0) return {};
  void* array = atom.extract(column.name.c_str());
  if (array == nullptr) throw std::invalid_argument("atoms no longer have the property \"" + column.name + "\"");
  // The rows of a table lie one after the other; `array` has a pointer to each.
  if (is_table(atom.extract_datatype(column.name.c_str()))) array = *static_cast<void**>(array);
  return {static_cast<const std::byte*>(array), static_cast<std::size_t>(atom.nmax) * column.row_bytes};
}

}  // namespace offpath_lammps
