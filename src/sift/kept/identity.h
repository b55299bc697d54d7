// The place of a sift pool's kept objects, and the object that identifies them: the pool's definition, and the source
// under which this member publishes before and after restarts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "service/frame.h"
#include "sift/settings.h"
#include "sift/split/row_form.h"

namespace offpath::sift {

inline constexpr std::string_view identity_column = "pool";

struct Identity {
  std::uint64_t incarnation, user;
  std::string text;
};

// Null: out of memory.
[[nodiscard]] service::FramePtr identity_object(std::uint64_t incarnation, uid_t user, std::string_view text,
                                                const FrameMemory& memory);
// `user`: the pool's user, in a record that the agent wrote; bytes that name another one are forged.
[[nodiscard]] Result<Identity> read_identity(const Result<service::FramePtr>& object, uid_t user);

// The name of the pool that keeps the objects. Pools of one name with other members or users have different ones.
[[nodiscard]] std::string own_name(const Settings& settings, std::string_view text, uid_t user);
// Whether its objects were of use only to a former life of this agent.
[[nodiscard]] bool is_passing(std::string_view own) noexcept;
// Whether the pool `own` may keep the objects of a sift pool of the name in `text`.
[[nodiscard]] bool may_keep(std::string_view own, std::string_view text);

}  // namespace offpath::sift
