// Requests about whole pools.
#pragma once

#include <string>
#include <vector>

#include "host/connection.h"

namespace offpath::host {

struct PoolEntry {
  std::string row_key, column_key;
  std::uint64_t bytes, rows, sequence;
};

[[nodiscard]] Result<std::vector<PoolEntry>> list_pool(Connection& connection, std::string_view pool, std::string_view row_glob,
                                                       std::string_view column_glob, TimeNs deadline);
[[nodiscard]] Result<std::uint64_t> drop_from_pool(Connection& connection, std::string_view pool, std::string_view row_glob,
                                                   std::string_view column_glob, TimeNs deadline);
// The agent writes if it can be given the descriptor; otherwise this program gets frame by frame and writes.
[[nodiscard]] Result<std::uint64_t> write_pool(const ConnectionPtr& connection, std::string_view pool, int fd, TimeNs deadline);

// The public functions' arguments: a pool's name, and patterns, of which none means all.
struct Globs {
  std::string_view pool, row, column;
};
[[nodiscard]] Result<Globs> checked_globs(const char* pool, const char* row_glob, const char* column_glob);

}  // namespace offpath::host

struct ofp_listing {
  std::vector<offpath::host::PoolEntry> entries;
};
