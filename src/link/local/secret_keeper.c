// For tests: a program whose memory is nobody else's business. Alone it prints where its secret will lie, and where it
// has other memory mapped; both are the same places in each run. With the number of a descriptor it takes its secret
// in, writes there as which user it runs, and stays.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char secret[64 * 4096] __attribute__((aligned(4096)));
static char other[1 << 20] __attribute__((aligned(4096)));

int main(int count, char** arguments) {
  if (count < 2) {
    printf("%p %zu %p %zu\n", (void*)secret, sizeof secret, (void*)other, sizeof other);
    return 0;
  }
  memset(other, 'x', sizeof other);
  memset(secret, 's', sizeof secret);
  const unsigned user = geteuid();
  if (write(atoi(arguments[1]), &user, sizeof user) != sizeof user) return 1;
  for (;;) pause();
}
