// A part of a program that is loaded when it is first needed, because of the libraries that it brings: a shared object
// of our own, installed at a fixed place beside the program or library that loads it.
//
// A module exports tables of functions. C++ types cross that border, which is safe only between files that were made
// together: every table begins with its version, which is compared first. No exception crosses it (border.h).
//
// Read this first in src/base/module, then border.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace offpath {

struct Module {
  std::string_view file;     // its name
  std::string_view folder;   // where it is, from the folder of the file that has this code: empty, or "../lib/offpath"
  std::string_view version;  // the beginning of its tables
  // For errors.
  std::string_view purpose;  // its user, for errors: "queries need Arrow"
  std::string_view loader;   // the library that loads it, and is installed with it: "liboffpath.so"
};

// The table that a module exports as `symbol`. Any thread; blocks while the module and its libraries are loaded, which
// happens once: the module stays until the process ends. A missing module is looked for again at every call, since it
// may have been installed meanwhile. Error::unsupported names the file and the mistake; a lack of memory or descriptors
// has its own error. If a static object of the module, or of its libraries, finds no memory, the process ends: an
// exception would leave the loader of libraries locked.
[[nodiscard]] Result<const void*> load_table(const Module& module, const char* symbol);

// Where a module is, if `own_file` has this code.
[[nodiscard]] std::string module_path(std::string_view own_file, const Module& module);

template <class Table>
[[nodiscard]] Result<const Table*> load_table(const Module& module, const char* symbol) {
  static_assert(offsetof(Table, version) == 0);
  OFP_ASSIGN(const void* table, load_table(module, symbol));
  return static_cast<const Table*>(table);
}

}  // namespace offpath
