// The definition of a sift pool: its options and all its members, with their racks and roles where stages are mapped.
// All members place elements by it. A name with patterns, or without some options, becomes a definition once, when the
// pool is made (agreement.h says how members agree on one).
//
//   text        "sift:/t?key=id&members=a,b": for users and for records on disk. With a thousand members of
//               irregular names it is longer than a name may be
//   object      the text as sent once to a member that does not have it
//   reference   "sift:/t?definition=HASH": in all other messages of members, and in agreement. The hash is
//               of the object: SipHash with 128 bits, as a name; members trust each other
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

// u32 magic "OFSD" | u16 version | u16 zero | u32 bytes | text
[[nodiscard]] std::vector<std::byte> encode_definition(std::string_view text);
// The text, of arbitrary bytes: as definition_of makes it, of at most wire::members_max members.
[[nodiscard]] Result<std::string> decode_definition(Bytes object);
[[nodiscard]] std::string reference_to(std::string_view text);
[[nodiscard]] bool is_reference(std::string_view text) noexcept;
// For messages and lists: the text, or its beginning if it is longer than a name may be.
[[nodiscard]] std::string shown(std::string_view text);

// The place of a living member.
using PlaceOf = std::function<MemberPlace(const std::string& member)>;

// The definition that `text`, with these settings, makes while these members live. Members named in full need not live:
// another member may have made the pool. Error::would_block: fewer live than wait= requires, or a member whose place a
// mapped stage needs is absent.
[[nodiscard]] Result<Definition> definition_of(std::string_view text, const Settings& settings,
                                               std::span<const std::string> alive, const PlaceOf& place_of);

// Fails with Error::exists if `text` names other members or options than the pool of its name, which exists with these
// settings and this definition. Omitted options do not differ.
[[nodiscard]] Status check_same(std::string_view text, const Settings& existing, std::string_view definition);

// Whether the first of two definitions of one name wins: it has more members, or as many and comes first in order.
[[nodiscard]] Result<bool> comes_before(std::string_view text, std::string_view other);

[[nodiscard]] bool has_member(const Settings& settings, std::string_view name);

}  // namespace offpath::sift
