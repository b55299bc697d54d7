// The file of a Unix socket: checks that its directory is safe, and removes the file at the agent's end.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace offpath::agent {

// Makes the directory of `path` if it is missing: for the agent's user alone, or open to all if others may connect.
// Refuses an existing directory in which others could replace the socket.
[[nodiscard]] Status prepare_directory_of(const std::string& path, bool everyone);

class SocketFile {
 public:
  // For a socket that has just been bound to `path`.
  explicit SocketFile(std::string path);
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&&) = delete;
  ~SocketFile();  // removes the file, unless another file has replaced it

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace offpath::agent
