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
#include "task/task_limits.h"

namespace offpath::task {

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
