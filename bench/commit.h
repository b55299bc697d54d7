// The commit to which a benchmark's figures belong.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace offpath::bench {

// The current commit of the source tree that contains `program` (in its build directory or virtual environment), from
// git: "1a2b3c4", or "1a2b3c4-dirty" if tracked files have changed. A program is only rebuilt when its sources change,
// so the commit of its build may be outdated. Returns `built_in` if there is no such tree, or no git.
[[nodiscard]] std::string commit_of(const std::filesystem::path& program, std::string_view built_in);

}  // namespace offpath::bench
