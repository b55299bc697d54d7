#include "task/user_plugins.h"

#include <algorithm>

#include "base/text.h"

namespace offpath::task {

namespace {

// A name appears in logs, status and metrics, which are UTF-8; a path may be any bytes.
std::string name_of(std::string_view path, uid_t user) {
  std::string name;
  for (const char letter : path) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte < 0x80)
      name += letter;
    else
      name += fmt::format("\\x{:02X}", byte);
  }
  return fmt::format("{} of user {}", name, user);
}

}  // namespace

Result<UserPlugins::Ptr> UserPlugins::find(uid_t user, std::optional<gid_t> group, std::string_view path) {
  if (!options_.permitted) return fail(Error::denied, "task.user_plugins is off");
  if (!group)
    return fail(Error::denied, "the program is not connected by a Unix socket, so the kernel does not give its user");
  if (user != options_.agent && !options_.may_change_user)
    return fail(Error::denied, "this agent is user {} and cannot run anything as user {}: it has to be started as root",
                options_.agent, user);
  if (std::ranges::any_of(path, is_control)) return fail(Error::denied, "its path has control characters");
  std::erase_if(all_, [](const auto& each) { return each.second.expired(); });
  const std::pair key(user, std::string(path));
  if (const auto at = all_.find(key); at != all_.end()) return at->second.lock();
  const auto own = std::ranges::count_if(all_, [&](const auto& each) { return each.first.first == user; });
  if (static_cast<std::size_t>(own) >= options_.of_user_max)
    return fail(Error::denied, "user {} has {} plug-ins of its own here, which is the limit (task.user_plugins_max)",
                user, own);
  auto made = std::make_shared<plugin::PluginOptions>();
  made->path = path;
  made->name = name_of(path, user);
  made->own = true;
  made->user = user;
  made->group = *group;
  made->workers = options_.workers;
  made->memory_bytes = options_.memory_bytes;
  made->deadline_ns = options_.deadline_ns;
  made->sandbox = options_.sandbox;
  all_.emplace(key, made);
  return made;
}

}  // namespace offpath::task
