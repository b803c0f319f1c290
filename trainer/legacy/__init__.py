"""What only stage 0 needs: replay on the CPU. The legacy factory alone imports it."""
