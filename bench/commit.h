// Which commit a benchmark's figures belong to.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace offpath::bench {

// What git says now of the source tree that `program` lies in (its build directory, its virtual environment), as
// "1a2b3c4", or "1a2b3c4-dirty" where files it knows have changed. A program is built once and again only where its
// sources change, so what was true then may not be now. `built_in` where there is no such tree, or no git.
[[nodiscard]] std::string commit_of(const std::filesystem::path& program, std::string_view built_in);

}  // namespace offpath::bench
