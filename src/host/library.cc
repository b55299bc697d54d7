// The library's version and build.
#include "base/status.h"
#include "offpath/offpath.h"

#define OFP_TEXT_(x) #x
#define OFP_TEXT(x) OFP_TEXT_(x)

extern "C" {

const char* ofp_version(void) {
  return OFP_TEXT(OFP_VERSION_MAJOR) "." OFP_TEXT(OFP_VERSION_MINOR) "." OFP_TEXT(OFP_VERSION_PATCH);
}

const char* ofp_code_name(int32_t code) {
  if (code == OFP_OK) return "ok";
  return offpath::error_name(static_cast<offpath::Error>(code)).data();  // literals of a table, so they end with NUL
}

}  // extern "C"
