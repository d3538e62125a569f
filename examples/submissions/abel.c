#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    char line[64];
    int64_t sum = 0;
    while (fgets(line, sizeof line, stdin)) sum += strtoll(line, NULL, 10);
    printf("%lld\n", (long long)sum);
    return 0;
}
