// Stands for the program of a page's reader: each rank finds its agent.
#include <offpath/offpath.h>
#include <stdio.h>

int main(void) {
  ofp_channel* channel = NULL;
  ofp_error error;
  if (ofp_connect(NULL, NULL, &channel, &error) != OFP_OK) return fprintf(stderr, "%s\n", error.message), 1;
  ofp_close(channel);
  return 0;
}
