// status_page.html, as CMake put it into the program.
#pragma once

#include <string_view>

namespace offpath::agent {

extern const std::string_view status_page;

}  // namespace offpath::agent
