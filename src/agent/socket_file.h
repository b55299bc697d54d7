// The file of a Unix socket: the directory it lies in is safe, and it goes away with its agent.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace offpath::agent {

// Makes the directory of `path` if it is missing: for the agent's user alone, or, if others may connect, to be
// entered by all. One that is there is refused if others could put another socket in the agent's place.
[[nodiscard]] Status prepare_directory_of(const std::string& path, bool everyone);

class SocketFile {
 public:
  // Of a socket that has just been bound to `path`.
  explicit SocketFile(std::string path);
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&&) = delete;
  ~SocketFile();  // removes the file, unless another one lies there by now

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace offpath::agent
