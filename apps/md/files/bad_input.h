// An error in the user's input. Thrown where it is found, and printed once, by main.
#pragma once

#include <stdexcept>

namespace md {

class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The simulation cannot continue: an atom is lost, or a position is not a number.
class BrokenRun : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace md
