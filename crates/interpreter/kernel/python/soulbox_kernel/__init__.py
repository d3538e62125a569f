"""What a SoulBox Python kernel adds to ipykernel."""
