// The columns of a table as this engine stores them: an Arrow IPC stream of one batch, of fixed-width columns.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>

namespace offpath::adios {

// Finds the values of each column by its name within `bytes`, whose address is a multiple of 8. Throws
// std::runtime_error for bytes that are not such a table.
[[nodiscard]] std::map<std::string, std::span<const std::byte>, std::less<>> read_table(
    std::span<const std::byte> bytes);

}  // namespace offpath::adios
