// Plug-ins that programs bring: which of them may run, as which user, and within which limits. A user's programs that
// name the same file share its workers, which end with the last session that named it.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "plugin/call.h"

namespace offpath::task {

struct UserPluginOptions {
  bool permitted = false;  // task.user_plugins
  uid_t agent = 0;         // the agent's own user
  bool may_change_user = false;
  std::size_t of_user_max = 4;  // different files
  unsigned workers = 2;         // the next three are for each file
  std::uint64_t memory_bytes = 1 << 30;
  TimeNs deadline_ns = 60 * second_ns;
  plugin::Sandbox sandbox = plugin::Sandbox::on;
};

class UserPlugins {
 public:
  using Ptr = std::shared_ptr<const plugin::PluginOptions>;
  explicit UserPlugins(const UserPluginOptions& options) : options_(options) {}

  // Error::denied has the reason. `group` is empty if the kernel does not vouch for the user.
  [[nodiscard]] Result<Ptr> find(uid_t user, std::optional<gid_t> group, std::string_view path);

 private:
  UserPluginOptions options_;
  std::map<std::pair<uid_t, std::string>, std::weak_ptr<const plugin::PluginOptions>> all_;
};

}  // namespace offpath::task
