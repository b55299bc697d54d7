// The definition of a sift pool: its name with all options and the names of all its members. All members place elements
// by it. A name with patterns, or without some options, becomes a definition once, when the pool is made (agreement.h
// says how members agree on one).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sift/settings.h"

namespace offpath::sift {

// The names in "a,b,c", in the order of the text.
[[nodiscard]] std::vector<std::string> split_names(std::string_view names);

struct Definition {
  std::string text;
  std::vector<std::string> members;  // sorted
};

// Where a member that lives is.
using PlaceOf = std::function<MemberPlace(const std::string& member)>;

// What `text`, with these settings of its own, defines while these members live. Members that it names in full need not
// live: another member may have made the pool. Error::would_block: fewer live than wait= says, or one whose place a
// mapped stage needs does not.
[[nodiscard]] Result<Definition> definition_of(std::string_view text, const Settings& settings,
                                               std::span<const std::string> alive, const PlaceOf& place_of);

// Fails with Error::exists if `text` names other members or options than the pool of its name, which exists with these
// settings and this definition. Options that are left out differ in nothing.
[[nodiscard]] Status check_same(std::string_view text, const Settings& existing, std::string_view definition);

// Of two definitions of one name, whether the first wins: it has more members, or else comes first in order.
[[nodiscard]] Result<bool> comes_before(std::string_view text, std::string_view other);

[[nodiscard]] bool has_member(const Settings& settings, std::string_view name);

}  // namespace offpath::sift
