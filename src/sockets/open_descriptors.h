// The process's open descriptors, without this library's own.
#pragma once

#include <dirent.h>

#include <charconv>
#include <cstring>

#include "sockets/own_descriptors.h"

namespace offpath::sockets {

template <class Take>
void each_descriptor(const Take& take) {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return;
  const int own = ::dirfd(folder);
  while (const dirent* entry = ::readdir(folder)) {
    int fd = -1;
    const auto [end, error] = std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), fd);
    if (error == std::errc() && *end == 0 && fd != own && !own_descriptors().has(fd)) take(fd);
  }
  ::closedir(folder);
}

}  // namespace offpath::sockets
