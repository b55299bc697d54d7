// The former setting of one limit, in a file of this user's own, so that it outlives the process that sets the limit:
// after a keeper was killed, the next one can restore it. The file's lock keeps others from setting the same limit
// meanwhile. It has a name of its own for each limit, is made before the first set and removed after the restore.
#pragma once

#include <optional>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::actuator {

class FormerSetting {
 public:
  struct Texts {
    std::string former;
    std::string set;   // the value read back after the last set; empty before the first
    std::string next;  // the value about to be set; may be empty
  };
  // `limit`: any text without newlines that names it, such as its path.
  FormerSetting(const std::string& directory, std::string limit);

  // An earlier process has ended without returning the limit. False as well if that process still lives.
  [[nodiscard]] bool was_left() const;
  // Locks the file. Returns its content; empty if it is new. Error::exists: another process has it.
  [[nodiscard]] Result<std::optional<Texts>> hold();
  [[nodiscard]] Status keep(const Texts& texts);
  void release(bool remove);  // remove: the limit has its former setting

 private:
  [[nodiscard]] Result<std::optional<Texts>> read() const;

  std::string path_, limit_;
  Fd file_;
};

}  // namespace offpath::actuator
