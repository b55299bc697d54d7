// The module that module_test.cc loads.
struct table {
  const char* version;
  int number;
};

__attribute__((visibility("default"))) const struct table of_this_version = {OFFPATH_VERSION, 42};
__attribute__((visibility("default"))) const struct table of_another_version = {"0.0.1", 43};
