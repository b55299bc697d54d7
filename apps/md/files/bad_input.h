// What a user gave and what is wrong with it. Thrown where it is found, printed once, by main.
#pragma once

#include <stdexcept>

namespace md {

class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The simulation itself cannot go on: an atom is lost, a position is not a number.
class BrokenRun : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace md
