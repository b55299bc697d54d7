// One page of an agent with several cores from the pages of each: what they count is added up, and what they list is
// listed together. Pure functions of the cores' pages.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace offpath::agent {

struct CorePage {
  std::string name;                 // of the core, as a member of the group
  std::optional<std::string> text;  // none: it does not answer
};

// /status.json. Counts are sums; percentiles and longest times are the largest of any core; names are those of the
// first core that answers. Entries of lists say which core they are of. "cores" has the cores, each with its name,
// process and whether it answers.
[[nodiscard]] std::string joined_status(std::span<const CorePage> cores);
// /schemas.json, a list.
[[nodiscard]] std::string joined_list(std::span<const CorePage> cores);
// /metrics in either format: each sample of several cores has the label `core`.
[[nodiscard]] std::string joined_metrics(std::span<const CorePage> cores);

}  // namespace offpath::agent
